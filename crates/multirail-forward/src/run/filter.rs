//! The seccomp filter of the program.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the seccomp filter knows the architectures x86_64 and aarch64");

/// The calls that the supervisor is asked about.
pub(super) const CONNECT: i64 = libc::SYS_connect;
pub(super) const GETPEERNAME: i64 = libc::SYS_getpeername;

/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// What asks the supervisor about two calls and allows all others. Programs of another architecture,
/// whose calls have other numbers, are not supervised.
const PROGRAM: [libc::sock_filter; 7] = [
    instruction(LOAD, 0, 0, ARCHITECTURE_AT),
    instruction(JUMP_IF_EQUAL, 0, 3, ARCHITECTURE),
    instruction(LOAD, 0, 0, NUMBER_AT),
    instruction(JUMP_IF_EQUAL, 2, 0, CONNECT as u32),
    instruction(JUMP_IF_EQUAL, 1, 0, GETPEERNAME as u32),
    instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    instruction(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
];

const fn instruction(code: u16, if_true: u8, if_false: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: if_true, jf: if_false, k: value }
}

/// Where the listener of a filter arrives that a child process has installed.
#[derive(Debug)]
pub struct Installed(UnixStream);

/// Makes `command` install the filter before it executes the program, and returns where the listener
/// arrives.
///
/// The program can then gain no privileges by executing other programs (`PR_SET_NO_NEW_PRIVS`).
///
/// # Errors
///
/// If no pair of sockets can be made. What fails in the child is an error of
/// [`std::process::Command::spawn`]; `EBUSY` there means that the command already runs under a
/// supervisor.
pub fn install(command: &mut std::process::Command) -> io::Result<Installed> {
    use std::os::unix::process::CommandExt;
    let (here, there) = UnixStream::pair()?;
    let in_child = move || {
        let listener = install_here()?;
        send(there.as_raw_fd(), listener.as_raw_fd())
    };
    // SAFETY: the closure makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(in_child) };
    Ok(Installed(here))
}

/// Installs the filter for this thread and what it starts. Makes system calls only.
fn install_here() -> io::Result<OwnedFd> {
    let program = libc::sock_fprog { len: PROGRAM.len() as u16, filter: PROGRAM.as_ptr().cast_mut() };
    // SAFETY: the kernel reads the filter, which lives until the end of the call.
    let listener = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

/// Room for the control message with one descriptor, aligned as the kernel wants it.
#[repr(align(8))]
struct Control([u8; 24]);

/// Sends a descriptor. Makes system calls only.
fn send(socket: i32, descriptor: i32) -> io::Result<()> {
    let mut byte = [0u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control([0; 24]);
    // SAFETY: zeros are a valid message header, and all pointers outlive the call. CMSG_SPACE of one
    // descriptor is 24 bytes.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(descriptor);
        libc::sendmsg(socket, &raw const message, 0)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Installed {
    /// The listener. Call it after the command was spawned.
    ///
    /// # Errors
    ///
    /// If the child sent none.
    pub(super) fn receive(self) -> io::Result<OwnedFd> {
        let mut byte = [0u8];
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut control = Control([0; 24]);
        // SAFETY: as in `send`. The descriptor in the control message is open and belongs to us.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = control.0.len() as _;
            if libc::recvmsg(self.0.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) < 0 {
                return Err(io::Error::last_os_error());
            }
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
                return Err(io::Error::other("the child process sent no listener"));
            }
            Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()))
        }
    }
}
