//! `BPF_PROG_TEST_RUN`: runs a classifier once, as if a packet left by a port. aya has no function
//! for it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const BPF_PROG_TEST_RUN: libc::c_long = 10;

/// Member `test` of the kernel's `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration_ns: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

/// Runs `program` for a packet of zeros that leaves by the port `ifindex` of this thread's network
/// namespace.
pub(crate) fn run_on(program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    run(program, &mut [0; 64], ifindex).map(|_verdict| ())
}

/// Runs `program` for a packet, which the program may change, and returns the program's verdict.
/// With `ifindex` 0 the packet leaves by no port.
pub(crate) fn run(program: BorrowedFd<'_>, packet: &mut [u8], ifindex: u32) -> io::Result<u32> {
    /// The position of `ifindex` in `struct __sk_buff`. All members before it must be zero.
    const IFINDEX_AT: usize = 10;
    let mut context = [0_u32; 16];
    context[IFINDEX_AT] = ifindex;
    let mut attributes = TestRun {
        program: program.as_raw_fd() as u32,
        data_size_in: packet.len() as u32,
        data_in: packet.as_ptr() as u64,
        data_size_out: packet.len() as u32,
        data_out: packet.as_mut_ptr() as u64,
        ctx_size_in: size_of_val(&context) as u32,
        ctx_in: context.as_ptr() as u64,
        ..TestRun::default()
    };
    // SAFETY: the attributes and the buffers outlive the call, and their sizes are correct.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, &raw mut attributes, size_of::<TestRun>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(attributes.retval) }
}
