//! A server whose one kind of filter is a function of Python.

use super::streams;
use crate::config::{self, Token};
use crate::error;
use crate::runtime;
use multirail::pipeline::{Filters, Io, PIPELINE, PIPELINE_EDGE, PipelineHandler};
use multirail::router::Router;
use multirail::session::{ListenConfig, Listener};
use pyo3::prelude::*;
use std::sync::{Arc, mpsc};

/// The kind of filter that the server makes.
pub(super) const KIND: &str = "python";

/// Serve a function as a filter until the process ends, and return the address.
///
/// The function is called with `Streams`, in a thread of its own, for each run.
#[pyfunction]
pub(crate) fn serve_filter(py: Python<'_>, address: &str, token: &Token, function: Py<PyAny>) -> PyResult<String> {
    // A fork after this is refused.
    runtime::get(py)?;
    let config = config::sessions(token, "", None)?;
    let listen = ListenConfig::new(config::address(address)?, config.clone());
    let function = Arc::new(function);
    let filters = Filters::none().with(KIND, move |_, _| {
        let function = function.clone();
        Ok(move |io: &mut Io<'_>| streams::call(io, &function))
    });
    let (ready, address) = mpsc::channel();
    let serve = move || {
        let served = multirail::runtime::block_on(async {
            let handler = PipelineHandler::new(filters, config);
            let edges = Arc::new(handler.edges());
            let router = Router::new().register(PIPELINE_EDGE, edges).register(PIPELINE, Arc::new(handler));
            let listener = Listener::bind(listen).await?;
            // Without a receiver, the process ends.
            let _ = ready.send(Ok(listener.address().to_string()));
            router.serve(listener).await
        });
        if let Err(error) = served {
            let _ = ready.send(Err(error));
        }
    };
    std::thread::Builder::new().name("filters".to_owned()).spawn(serve)?;
    match py.detach(move || address.recv()) {
        Ok(Ok(address)) => Ok(address),
        Ok(Err(error)) => Err(error::of(py, &error, None)),
        Err(_) => Err(error::other(py, "the server has ended".to_owned())),
    }
}
