//! The folder that a server serves: its entries, ranges of its files, and changes without a copy.

use crate::config::{self, Token};
use crate::error;
use crate::runtime::{self, OfProcess};
use crate::work::{Finish, Work, wait};
use multirail::files::browse::{self, BrowseError, Entry, EntryKind, Refusal, RefusalKind};
use multirail::{Config, Session};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The most entries of a directory that a call takes.
const MAX_ENTRIES: usize = 1 << 20;
/// Sessions that wait for calls. As many calls of several threads at a time open no session.
const MAX_IDLE: usize = 4;

/// The folder of a server. Calls of several threads have a session each.
#[pyclass(frozen, module = "multirail._multirail")]
pub(crate) struct Folder {
    parts: OfProcess<Arc<Parts>>,
}

/// What the server is asked for.
enum Call {
    Stat,
    List,
    Read { start: u64, length: u64 },
    MakeDir,
    Remove { recursive: bool },
}

impl Call {
    fn changes(&self) -> bool {
        matches!(self, Call::MakeDir | Call::Remove { .. })
    }
}

enum Answer {
    Entry(Entry),
    Entries(Vec<Entry>),
    Bytes(Vec<u8>),
    Nothing,
}

struct Parts {
    host: String,
    config: Config,
    idle: Mutex<Vec<Session>>,
}

impl Parts {
    fn take(&self) -> Option<Session> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Keeps a session for further calls.
    fn put_back(&self, session: Session) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(session);
        }
    }

    /// Asks over a session that has waited, or over a new one if that is over.
    async fn run(&self, path: &Path, call: &Call) -> Result<Answer, BrowseError> {
        if let Some(mut session) = self.take() {
            // What changes something is not asked for twice, so such a session is tried before.
            let tried =
                if call.changes() { ask(&mut session, Path::new(""), &Call::Stat).await } else { Ok(Answer::Nothing) };
            if !is_over(&tried) {
                let answer = ask(&mut session, path, call).await;
                if !is_over(&answer) {
                    self.put_back(session);
                }
                if !is_over(&answer) || call.changes() {
                    return answer;
                }
            }
        }
        let mut session = Session::connect(&self.host, self.config.clone()).await?;
        let answer = ask(&mut session, path, call).await;
        if !is_over(&answer) {
            self.put_back(session);
        }
        answer
    }
}

/// Whether the session has failed. After a refusal it can be used.
fn is_over(answer: &Result<Answer, BrowseError>) -> bool {
    matches!(answer, Err(BrowseError::Session(_)))
}

async fn ask(session: &mut Session, path: &Path, call: &Call) -> Result<Answer, BrowseError> {
    match call {
        Call::Stat => browse::stat(session, path).await.map(Answer::Entry),
        Call::List => browse::list(session, path, MAX_ENTRIES).await.map(Answer::Entries),
        Call::Read { start, length } => browse::read(session, path, *start, *length).await.map(Answer::Bytes),
        Call::MakeDir => browse::make_dir(session, path).await.map(|()| Answer::Nothing),
        Call::Remove { recursive } => browse::remove(session, path, *recursive).await.map(|()| Answer::Nothing),
    }
}

/// A refusal as the usual `OSError`, such as `FileNotFoundError`, with the URL as the file.
fn refused(refusal: &Refusal, host: &str, path: &Path) -> PyErr {
    let number = match refusal.kind {
        RefusalKind::NotFound => libc::ENOENT,
        RefusalKind::Exists => libc::EEXIST,
        RefusalKind::NotDirectory => libc::ENOTDIR,
        RefusalKind::IsDirectory => libc::EISDIR,
        RefusalKind::NotEmpty => libc::ENOTEMPTY,
        RefusalKind::NotAllowed => libc::EACCES,
        RefusalKind::Changed => libc::ESTALE,
        _ => libc::EIO,
    };
    PyOSError::new_err((number, refusal.reason.clone(), format!("mr://{host}/{}", path.display())))
}

fn described<'py>(py: Python<'py>, entry: &Entry) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("name", entry.name())?;
    let (kind, size) = match entry.kind {
        EntryKind::File => ("file", Some(entry.bytes)),
        EntryKind::Directory => ("directory", Some(0)),
        _ => ("other", None),
    };
    all.set_item("type", kind)?;
    all.set_item("size", size)?;
    all.set_item("mode", entry.mode)?;
    all.set_item("mtime", entry.modified.0 as f64 + f64::from(entry.modified.1) / 1e9)?;
    all.set_item("islink", entry.is_link)?;
    Ok(all)
}

impl Folder {
    fn call(&self, py: Python<'_>, path: PathBuf, call: Call) -> PyResult<Py<PyAny>> {
        runtime::get(py)?;
        let parts = (*self.parts).clone();
        let work: Work = Box::pin(async move {
            let answer = parts.run(&path, &call).await;
            Box::new(move |py: Python<'_>| match answer {
                Ok(Answer::Nothing) => Ok(py.None()),
                Ok(Answer::Entry(entry)) => described(py, &entry)?.into_py_any(py),
                Ok(Answer::Entries(entries)) => {
                    let all = entries.iter().map(|entry| described(py, entry)).collect::<PyResult<Vec<_>>>()?;
                    PyList::new(py, all)?.into_py_any(py)
                }
                Ok(Answer::Bytes(bytes)) => PyBytes::new(py, &bytes).into_py_any(py),
                Err(BrowseError::Session(error)) => Err(error::of(py, &error, Some(&parts.host))),
                Err(BrowseError::Refused(refusal)) => Err(refused(&refusal, &parts.host, &path)),
                Err(other) => Err(error::other(py, format!("{}: {other}", parts.host))),
            }) as Finish
        });
        wait(py, work)
    }
}

#[pymethods]
impl Folder {
    #[new]
    #[pyo3(signature = (host, *, token, rails = ""))]
    fn new(py: Python<'_>, host: &str, token: &Token, rails: &str) -> PyResult<Self> {
        runtime::get(py)?;
        let parts =
            Parts { host: config::host(host), config: config::sessions(token, rails, None)?, idle: Mutex::default() };
        Ok(Self { parts: OfProcess::new(Arc::new(parts)) })
    }

    /// What the server knows of a path, as a dictionary.
    fn stat(&self, py: Python<'_>, path: PathBuf) -> PyResult<Py<PyAny>> {
        self.call(py, path, Call::Stat)
    }

    /// The entries of a directory, as dictionaries.
    fn list(&self, py: Python<'_>, path: PathBuf) -> PyResult<Py<PyAny>> {
        self.call(py, path, Call::List)
    }

    /// Bytes of a file; fewer than length at its end.
    fn read(&self, py: Python<'_>, path: PathBuf, start: u64, length: u64) -> PyResult<Py<PyAny>> {
        self.call(py, path, Call::Read { start, length })
    }

    /// Make a directory.
    fn make_dir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Py<PyAny>> {
        self.call(py, path, Call::MakeDir)
    }

    /// Remove a file or an empty directory; with recursive also what is below it.
    #[pyo3(signature = (path, *, recursive = false))]
    fn remove(&self, py: Python<'_>, path: PathBuf, recursive: bool) -> PyResult<Py<PyAny>> {
        self.call(py, path, Call::Remove { recursive })
    }
}
