//! Streams of rows for Python: pulled batch by batch, or taken whole through Arrow's C stream.
//!
//! Whoever waits for rows does so without Python's lock, and looks for signals now and then.

use std::fs::File;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use features::live::Plan;
use features::model::{Classifier, Search};
use features::pcap::{self, Captures, Fault, Progress, Run};
use features::row_file::SavedRows;
use features::sink::{Nowhere, Scorer};
use features::stream::{CaptureStream, Error, LiveHandle, LiveStream, Next, SavedStream};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use serde_json::json;

use crate::batch::Batch;
use crate::error::{failed, input, of_datapath, of_model, of_stream};
use crate::machine::{datapath, find_without};
use crate::options::{self, How, options};

/// By which a capsule is known to hold a stream.
pub(crate) const C_STREAM: &std::ffi::CStr = c"arrow_array_stream";
/// Time between two checks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Rows as they come.
#[pyclass(frozen, module = "lowroad._native")]
#[derive(Debug)]
pub(crate) struct Stream(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The file or the interface.
    name: String,
    schema: SchemaRef,
    control: Control,
    /// A capture that breaks off ends without an error.
    partial: bool,
    source: Mutex<Source>,
    /// What ended a C stream: whoever took it tells of it in words of its own.
    raised: Mutex<Option<PyErr>>,
}

#[derive(Debug)]
enum Control {
    File(Arc<Progress>),
    Live(LiveHandle),
}

#[derive(Debug)]
enum Source {
    Capture(Box<CaptureStream>),
    Saved(SavedStream),
    Live(LiveStream),
    /// Its rows have been taken, or nobody wants them; with a file's account.
    Ended(Option<String>),
}

#[pyfunction]
#[expect(
    clippy::needless_pass_by_value,
    reason = "Python's arguments are extracted into values"
)]
pub(crate) fn read_pcap(
    py: Python<'_>,
    path: PathBuf,
    schema: &str,
    without: Vec<String>,
    threads: &Bound<'_, PyAny>,
    partial: bool,
    asked: &Bound<'_, PyDict>,
) -> PyResult<Stream> {
    let schema = find_without(py, schema, &without)?;
    let run = Run {
        options: options(asked, schema, None)?,
        schema,
    };
    let threads = options::threads(threads)?;
    Stream::of_capture(py, path, run, threads, None, partial)
}

/// A capture, or rows that were written before, with what a model says of each row.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "as many as Python's function has"
)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "Python's arguments are extracted into values"
)]
pub(crate) fn score(
    py: Python<'_>,
    path: PathBuf,
    model: PathBuf,
    schema: Option<&str>,
    without: Vec<String>,
    threads: &Bound<'_, PyAny>,
    partial: bool,
    asked: &Bound<'_, PyDict>,
) -> PyResult<Stream> {
    let search = beside_library(py)?;
    let model = py.detach(|| Classifier::load(&model, &search));
    let model = model.map_err(|error| of_model(py, &error))?;
    if SavedRows::is_named_so(&path) {
        let for_captures = schema.is_some() || !without.is_empty() || !threads.is_none();
        if for_captures || !asked.is_empty() {
            let path = path.display();
            let what = format!("{path}: rows are scored as they are; options are for captures");
            return Err(input(py, &what));
        }
        return Stream::of_rows(py, &path, model);
    }
    let schema = find_without(py, schema.unwrap_or_else(|| model.schema()), &without)?;
    let run = Run {
        options: options(asked, schema, None)?,
        schema,
    };
    let threads = options::threads(threads)?;
    let scorer = model.scorer(&run.arrow_schema());
    let scorer = scorer.map_err(|error| input(py, &error))?;
    Stream::of_capture(py, path, run, threads, Some(scorer), partial)
}

/// The wheel has the program that evaluates ONNX beside this library.
fn beside_library(py: Python<'_>) -> PyResult<Search> {
    let library = py.import("lowroad._native")?.getattr("__file__")?;
    Ok(Search::in_folder_of(&library.extract::<PathBuf>()?))
}

impl Stream {
    fn new(
        name: String,
        schema: SchemaRef,
        control: Control,
        partial: bool,
        source: Source,
    ) -> Self {
        Self(Arc::new(Shared {
            name,
            schema,
            control,
            partial,
            source: Mutex::new(source),
            raised: Mutex::default(),
        }))
    }

    fn of_capture(
        py: Python<'_>,
        path: PathBuf,
        run: Run,
        threads: Option<NonZeroU32>,
        scorer: Option<Box<dyn Scorer>>,
        partial: bool,
    ) -> PyResult<Self> {
        let name = path.display().to_string();
        let threads = pcap::threads(threads, slice::from_ref(&path));
        let file = py
            .detach(move || open(&path))
            .map_err(|why| input(py, &format!("{name}: {why}")))?;
        let stream = CaptureStream::start_on(threads, run, Captures::one(file), scorer);
        let stream = stream.map_err(|error| failed(py, &error))?;
        let schema = stream.schema().clone();
        let control = Control::File(Arc::clone(stream.progress()));
        let source = Source::Capture(Box::new(stream));
        Ok(Self::new(name, schema, control, partial, source))
    }

    fn of_rows(py: Python<'_>, path: &Path, model: Classifier) -> PyResult<Self> {
        let rows = py.detach(|| SavedRows::open(path));
        let rows = rows.map_err(|why| input(py, &why))?;
        let scorer = model.scorer(rows.schema());
        let scorer = scorer.map_err(|error| input(py, &error))?;
        let stream = SavedStream::start(rows, scorer).map_err(|error| failed(py, &error))?;
        let name = path.display().to_string();
        let schema = stream.schema().clone();
        let control = Control::File(Arc::clone(stream.progress()));
        Ok(Self::new(
            name,
            schema,
            control,
            false,
            Source::Saved(stream),
        ))
    }
}

fn open(path: &Path) -> Result<File, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    match file.metadata() {
        Ok(found) if found.is_dir() => Err("is a folder".to_owned()),
        Ok(_) => Ok(file),
        Err(error) => Err(error.to_string()),
    }
}

#[pyfunction]
#[expect(
    clippy::needless_pass_by_value,
    reason = "Python's arguments are extracted into values"
)]
pub(crate) fn live(
    py: Python<'_>,
    interface: String,
    datapath_name: &str,
    schema: &str,
    without: Vec<String>,
    how: &Bound<'_, PyDict>,
    asked: &Bound<'_, PyDict>,
) -> PyResult<Stream> {
    let how = How::of(how)?;
    let schema = find_without(py, schema, &without)?;
    let options = options(asked, schema, how.max_pps)?;
    let chosen = datapath(py, datapath_name)?;
    let link = netdev::Netlink::new()
        .and_then(|mut netlink| netlink.link_by_name(&interface))
        .map_err(|error| input(py, &format!("{interface}: {error}")))?;
    let plan = Plan {
        interface: interface.clone(),
        ifindex: link.index,
        options,
        schema,
        direction: how.direction,
        promiscuous: how.promiscuous,
        tap: how.tap,
        workers: how.workers,
        wakeup: how.wakeup,
        steer: false,
        recorder: None,
        sink: Arc::new(|| Box::new(Nowhere)),
        model: None,
    };
    let stream = py
        .detach(|| LiveStream::start(&*chosen, plan, how.duration))
        .map_err(|error| of_datapath(py, datapath_name, &error))?;
    let rows = stream.schema().clone();
    let control = Control::Live(stream.handle().clone());
    let source = Source::Live(stream);
    Ok(Stream::new(interface, rows, control, false, source))
}

#[pymethods]
impl Stream {
    /// The next batch; none at the end.
    fn pull(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        loop {
            match py.detach(|| self.0.next_within(SIGNAL_INTERVAL)) {
                Ok(Next::Batch(batch)) => return Ok(Some(Batch(batch))),
                Ok(Next::End) => return Ok(None),
                Ok(Next::Pending) => py.check_signals()?,
                Err(error) => return Err(of_stream(py, &self.0.name, &error)),
            }
        }
    }

    /// Everything that is left, as Arrow's C stream.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A producer may leave a wish for other types unheard.
        drop(requested_schema);
        if py.detach(|| matches!(*lock(&self.0.source), Source::Ended(_))) {
            return Err(input(
                py,
                &format!("{}: its rows have been taken; begin again", self.0.name),
            ));
        }
        let reader = Box::new(Reader(Arc::clone(&self.0)));
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), C_STREAM)
    }

    /// Raises what ended a C stream early.
    fn check(&self) -> PyResult<()> {
        lock(&self.0.raised).take().map_or(Ok(()), Err)
    }

    /// The account, as JSON; of a file once all its rows have been taken.
    fn counters(&self, py: Python<'_>) -> Option<String> {
        match &self.0.control {
            Control::Live(handle) => {
                let counters = handle.counters();
                let rows = (counters.rows, counters.lost_rows);
                let more = json!({"no_room": counters.no_room});
                Some(counters.account.json(rows, more).to_string())
            }
            Control::File(_) => py.detach(|| match &*lock(&self.0.source) {
                Source::Ended(account) => account.clone(),
                _ => None,
            }),
        }
    }

    /// Packets that were read so far.
    #[getter]
    fn packets(&self) -> u64 {
        match &self.0.control {
            Control::File(progress) => progress.packets.load(Ordering::Relaxed),
            Control::Live(handle) => handle.counters().account.seen.packets,
        }
    }

    /// Takes no more packets in; rows of those that came can still be taken.
    fn stop(&self) {
        match &self.0.control {
            Control::File(progress) => progress.stop.store(true, Ordering::Relaxed),
            Control::Live(handle) => handle.stop(),
        }
    }

    /// Ends it, and leaves its rows.
    fn close(&self, py: Python<'_>) {
        self.stop();
        py.detach(|| {
            let mut source = lock(&self.0.source);
            if !matches!(*source, Source::Ended(_)) {
                *source = Source::Ended(None);
            }
        });
    }
}

impl Shared {
    fn next_within(&self, patience: Duration) -> Result<Next, Error> {
        let mut source = lock(&self.source);
        let next = match &mut *source {
            Source::Capture(stream) => stream.next_within(patience),
            Source::Saved(stream) => stream.next_within(patience),
            Source::Live(stream) => stream.next_within(patience),
            Source::Ended(_) => return Ok(Next::End),
        };
        if let Ok(Next::Batch(_) | Next::Pending) = next {
            return next;
        }
        *source = Source::Ended(source.account());
        match next {
            Err(Error::Capture(Fault::Input(_))) if self.partial => Ok(Next::End),
            next => next,
        }
    }
}

impl Source {
    fn account(&self) -> Option<String> {
        let stream = match self {
            Self::Capture(stream) => stream,
            Self::Saved(stream) => {
                let (rows, unscored) = stream.summary()?;
                return Some(json!({"rows": rows, "unscored": unscored}).to_string());
            }
            Self::Live(_) | Self::Ended(_) => return None,
        };
        let summary = stream.summary()?;
        let fault = summary.damaged.first().map(ToString::to_string);
        let mut more = json!({"stopped": summary.stopped, "fault": fault});
        if let Some(unscored) = stream.unscored() {
            more["unscored"] = unscored.into();
        }
        let rows = (summary.rows, summary.lost_rows);
        Some(summary.counters.json(rows, more).to_string())
    }
}

/// What a C stream pulls from.
struct Reader(Arc<Shared>);

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let raised = match self.0.next_within(SIGNAL_INTERVAL) {
                Ok(Next::Batch(batch)) => return Some(Ok(batch)),
                Ok(Next::End) => return None,
                Ok(Next::Pending) => Python::try_attach(|py| py.check_signals())?.err(),
                Err(error) => Python::try_attach(|py| of_stream(py, &self.0.name, &error)),
            };
            if let Some(raised) = raised {
                let message = Python::try_attach(|py| raised.value(py).to_string())?;
                *lock(&self.0.raised) = Some(raised);
                return Some(Err(ArrowError::ExternalError(message.into())));
            }
        }
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.0.schema.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
