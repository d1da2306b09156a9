//! The functions of the C shim, with owned values.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null, null_mut};

#[repr(C)]
struct Raw {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn mr_ucx_open(out: *mut *mut Raw, address: *mut *const c_void, bytes: *mut usize, event_fd: *mut c_int) -> c_int;
    fn mr_ucx_close(u: *mut Raw);
    fn mr_ucx_connect(u: *mut Raw, address: *const c_void, heeds_death: c_int) -> c_int;
    fn mr_ucx_progress(u: *mut Raw) -> c_uint;
    fn mr_ucx_failed(u: *const Raw) -> c_int;
    fn mr_ucx_arm(u: *mut Raw) -> c_int;
    fn mr_ucx_send(u: *mut Raw, data: *const c_void, bytes: usize, tag: u64, request: *mut *mut c_void) -> c_int;
    fn mr_ucx_receive(u: *mut Raw, into: *mut c_void, bytes: usize, tag: u64, request: *mut *mut c_void) -> c_int;
    fn mr_ucx_sent(request: *mut c_void) -> c_int;
    fn mr_ucx_received(request: *mut c_void, got: *mut usize) -> c_int;
    fn mr_ucx_cancel(u: *mut Raw, request: *mut c_void) -> c_int;
    fn mr_ucx_text(status: c_int) -> *const c_char;
}

/// A context, a worker and at most one endpoint, for one edge.
#[derive(Debug)]
pub(super) struct Worker {
    raw: NonNull<Raw>,
    /// The descriptor for `poll`. UCX owns it.
    pub(super) event_fd: RawFd,
    pub(super) address: Vec<u8>,
}

// SAFETY: the worker is created for use by any one thread at a time (UCS_THREAD_MODE_SERIALIZED).
unsafe impl Send for Worker {}

/// An operation in progress. Its buffer must not move until the operation has ended or was
/// cancelled.
#[derive(Debug)]
pub(super) struct Request(NonNull<c_void>);

// SAFETY: as for the worker.
unsafe impl Send for Request {}

/// The state of an operation.
#[derive(Debug)]
pub(super) enum RequestState {
    /// It has ended. A receive got this many bytes.
    Done(usize),
    GoesOn(Request),
}

impl Worker {
    pub(super) fn open() -> io::Result<Self> {
        let (mut raw, mut address, mut bytes, mut event_fd) = (null_mut(), null(), 0, -1);
        // SAFETY: valid places for the results.
        check(unsafe { mr_ucx_open(&mut raw, &mut address, &mut bytes, &mut event_fd) })?;
        let raw = NonNull::new(raw).ok_or_else(|| io::Error::other("UCX gave nothing"))?;
        // SAFETY: the shim returns this many valid bytes, which live as long as the worker.
        let address = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), bytes) }.to_vec();
        Ok(Self { raw, event_fd, address })
    }

    /// Connects to a peer. UCX does not validate addresses, so it must come from an authenticated
    /// peer. With `heeds_death`, UCX itself notices that the peer has ended.
    pub(super) fn connect(&mut self, address: &[u8], heeds_death: bool) -> io::Result<()> {
        // UCX reads addresses in words.
        let mut aligned = vec![0u64; address.len() / 8 + 2];
        // SAFETY: there is room, and both are valid.
        unsafe { std::ptr::copy_nonoverlapping(address.as_ptr(), aligned.as_mut_ptr().cast(), address.len()) };
        // SAFETY: the worker is open.
        let status = unsafe { mr_ucx_connect(self.raw.as_ptr(), aligned.as_ptr().cast(), heeds_death.into()) };
        check(status).map(drop)
    }

    /// Makes progress. Returns whether something has happened.
    pub(super) fn progress(&mut self) -> bool {
        // SAFETY: the worker is open.
        unsafe { mr_ucx_progress(self.raw.as_ptr()) != 0 }
    }

    pub(super) fn check(&self) -> io::Result<()> {
        // SAFETY: the worker is open.
        check(unsafe { mr_ucx_failed(self.raw.as_ptr()) }).map(drop)
    }

    /// Arms the event descriptor for the next event. Returns false if there is an event already.
    pub(super) fn arm(&mut self) -> bool {
        // SAFETY: the worker is open.
        unsafe { mr_ucx_arm(self.raw.as_ptr()) == 0 }
    }

    /// # Safety
    ///
    /// `data` must stay where it is until the request has ended.
    pub(super) unsafe fn send(&mut self, data: &[u8], tag: u64) -> io::Result<RequestState> {
        let mut request = null_mut();
        // SAFETY: valid bytes, and the caller keeps them.
        let how = unsafe { mr_ucx_send(self.raw.as_ptr(), data.as_ptr().cast(), data.len(), tag, &mut request) };
        state(how, request, 0)
    }

    /// # Safety
    ///
    /// `into` must stay where it is, and not be touched, until the request has ended.
    pub(super) unsafe fn receive(&mut self, into: &mut [u8], tag: u64) -> io::Result<RequestState> {
        let mut request = null_mut();
        let (at, bytes) = (into.as_mut_ptr().cast(), into.len());
        // SAFETY: valid bytes, and the caller keeps them.
        let how = unsafe { mr_ucx_receive(self.raw.as_ptr(), at, bytes, tag, &mut request) };
        state(how, request, 0)
    }

    pub(super) fn sent(&mut self, request: Request) -> io::Result<RequestState> {
        // SAFETY: the request is this worker's, and not ended.
        let how = unsafe { mr_ucx_sent(request.0.as_ptr()) };
        state(how, request.0.as_ptr(), 0)
    }

    pub(super) fn received(&mut self, request: Request) -> io::Result<RequestState> {
        let mut got = 0;
        // SAFETY: the request is this worker's, and not ended.
        let how = unsafe { mr_ucx_received(request.0.as_ptr(), &mut got) };
        state(how, request.0.as_ptr(), got)
    }

    /// Cancels an operation. Returns false if it does not end, so that its buffer must never be
    /// freed.
    pub(super) fn cancel(&mut self, request: Request) -> bool {
        // SAFETY: the request is this worker's, and not ended.
        unsafe { mr_ucx_cancel(self.raw.as_ptr(), request.0.as_ptr()) == 0 }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: open, and closed only here.
        unsafe { mr_ucx_close(self.raw.as_ptr()) };
    }
}

fn state(how: c_int, request: *mut c_void, got: usize) -> io::Result<RequestState> {
    match (check(how)?, NonNull::new(request)) {
        (1, Some(request)) => Ok(RequestState::GoesOn(Request(request))),
        _ => Ok(RequestState::Done(got)),
    }
}

fn check(status: c_int) -> io::Result<c_int> {
    if status >= 0 {
        return Ok(status);
    }
    // SAFETY: a constant text for every status.
    let text = unsafe { CStr::from_ptr(mr_ucx_text(status)) };
    Err(io::Error::other(format!("UCX: {}", text.to_string_lossy())))
}
