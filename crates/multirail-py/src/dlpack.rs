//! Tensors of DLPack in the memory of the processor, as those of PyTorch, which have no buffer protocol.
//!
//! The structures are those of `dlpack.h`, version 1.

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_IsValid};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use std::ffi::{CStr, c_void};

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
/// The only major version of `dltensor_versioned` so far.
const MAJOR: u32 = 1;
const FLAG_READ_ONLY: u64 = 1;
/// Memory of the processor, and that which CUDA has pinned.
const CPU_DEVICES: [i32; 2] = [1, 3];
/// The most dimensions of a tensor.
const MAX_DIMENSIONS: usize = 64;

#[repr(C)]
struct Tensor {
    data: *mut u8,
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    type_code: u8,
    type_bits: u8,
    type_lanes: u16,
    shape: *const i64,
    /// Null if the tensor is contiguous.
    strides: *const i64,
    byte_offset: u64,
}

/// The beginning of a `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    manager: *mut c_void,
    deleter: *const c_void,
    flags: u64,
    tensor: Tensor,
}

/// The memory of a tensor.
pub(crate) struct Memory {
    pub(crate) start: *mut u8,
    pub(crate) length: usize,
    pub(crate) is_read_only: bool,
    /// It owns the tensor as long as it exists, unless a consumer takes the tensor out of it.
    pub(crate) owner: Py<PyAny>,
}

/// The memory of a tensor whose elements are one after another in the order of C.
pub(crate) fn memory(object: &Bound<'_, PyAny>) -> PyResult<Memory> {
    let py = object.py();
    let newest = [("max_version", (MAJOR, 0))].into_py_dict(py)?;
    let capsule = match object.call_method("__dlpack__", (), Some(&newest)) {
        // Its producer is older than the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__"),
        made => made,
    }?;
    let pointer = |name: &CStr| {
        // SAFETY: the capsule is an object, and the name ends in a zero.
        unsafe {
            match PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) {
                1 => Some(PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr())),
                _ => None,
            }
        }
    };
    let (tensor, is_read_only) = if let Some(versioned) = pointer(VERSIONED) {
        // SAFETY: a capsule of this name has such a structure, and owns it. The version is first in all of them.
        let versioned = unsafe {
            let major = *versioned.cast::<u32>();
            if major != MAJOR {
                return Err(PyBufferError::new_err(format!("a tensor of version {major} of DLPack; known is {MAJOR}")));
            }
            &*versioned.cast::<Versioned>()
        };
        (&versioned.tensor, versioned.flags & FLAG_READ_ONLY != 0)
    } else if let Some(plain) = pointer(PLAIN) {
        // SAFETY: a capsule of this name has a structure that begins with the tensor, and owns it.
        (unsafe { &*plain.cast::<Tensor>() }, false)
    } else {
        return Err(PyBufferError::new_err("__dlpack__ did not return a tensor"));
    };
    if !CPU_DEVICES.contains(&tensor.device_type) {
        return Err(PyBufferError::new_err(format!(
            "the tensor is on a device (DLPack's type {}); pass a copy in the memory of the processor",
            tensor.device_type
        )));
    }
    let (start, length) = (tensor.data, length(tensor)?);
    let start = start.wrapping_add(tensor.byte_offset as usize);
    Ok(Memory { start, length, is_read_only, owner: capsule.unbind() })
}

/// The length of a contiguous tensor in bytes.
fn length(tensor: &Tensor) -> PyResult<usize> {
    let unusable = || PyBufferError::new_err("the tensor has no valid shape");
    let dimensions = usize::try_from(tensor.dimensions).ok().filter(|d| *d <= MAX_DIMENSIONS).ok_or_else(unusable)?;
    // SAFETY: the tensor's producer gives as many lengths, and as many strides if there are some. With no dimension, both
    // may be null.
    let (shape, strides) = unsafe {
        let lengths = |start: *const i64| match start.is_null() || dimensions == 0 {
            true => None,
            false => Some(std::slice::from_raw_parts(start, dimensions)),
        };
        (lengths(tensor.shape).unwrap_or_default(), lengths(tensor.strides))
    };
    if shape.len() != dimensions {
        return Err(unusable());
    }
    let mut elements: i64 = 1;
    let mut is_contiguous = true;
    for dimension in (0..dimensions).rev() {
        // A dimension of one element is skipped by no stride.
        is_contiguous &= shape[dimension] == 1 || strides.is_none_or(|strides| strides[dimension] == elements);
        elements = elements.checked_mul(shape[dimension]).filter(|count| *count >= 0).ok_or_else(unusable)?;
    }
    if elements > 0 && !is_contiguous {
        return Err(PyBufferError::new_err(format!(
            "the tensor of shape {shape:?} has strides {:?}, so its bytes are not one after another; pass a copy, as \
             .contiguous() makes",
            strides.unwrap_or_default()
        )));
    }
    let bits = usize::from(tensor.type_bits) * usize::from(tensor.type_lanes);
    let bits = bits.checked_mul(elements as usize).ok_or_else(unusable)?;
    Ok(bits.div_ceil(8))
}
