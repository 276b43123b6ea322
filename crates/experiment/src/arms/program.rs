//! Programs of the user's own as arms: what `[[arm]]` of an experiment, or a file for `--arm`, may say.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::config::{Document, Error, Spanned, nearest};
use datapath::Missing;
use report::record::Program;
use serde::Deserialize;
use units::Span;

use super::template::{CommandLine, Template, Values};
use super::values::ReportedValue;
use crate::program::program;

/// How long each of set-up, start and tear-down may take where the file does not say.
const TIMEOUT: Duration = Duration::from_secs(10);
/// And at most.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);

/// A placeholder of a job, and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placeholder {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
}

impl Placeholder {
    pub(crate) const fn new(name: &'static str, meaning: &'static str) -> Self {
        Self { name, meaning }
    }
}

/// The placeholder that every job has.
pub(crate) const FOLDER: Placeholder =
    Placeholder::new("folder", "a folder for files, of the trial alone");
/// Another.
pub(crate) const HERE: Placeholder =
    Placeholder::new("here", "the folder of the file that states the arm");

/// A program that is an arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramArm {
    pub(crate) name: String,
    /// The file that states it; none for a section of the experiment's file.
    pub(crate) file: Option<String>,
    /// The folder of the file that it was read from: the value of `{here}`.
    pub(crate) here: PathBuf,
    pub(crate) needs: Vec<Prerequisite>,
    /// Files to write before the set-up, by their names in `{folder}`.
    pub(crate) files: BTreeMap<String, Template>,
    /// Runs to its end before `command` starts.
    pub(crate) setup: Option<CommandLine>,
    /// Runs until the trial ends.
    pub(crate) command: Option<CommandLine>,
    /// How `command` shows that it works.
    pub(crate) ready: Option<Ready>,
    /// Prints how many packets `command` has seen, once that has ended.
    pub(crate) packets: Option<CommandLine>,
    /// Runs to its end while `command` serves, and prints the values.
    pub(crate) client: Option<CommandLine>,
    pub(crate) values: Vec<ReportedValue>,
    /// Runs to its end after all else has.
    pub(crate) teardown: Option<CommandLine>,
    pub(crate) timeout: Duration,
}

/// Something that this machine must have for the program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prerequisite {
    /// A program in PATH.
    program: Option<String>,
    /// A file by its path.
    file: Option<String>,
    /// How to get it: a command.
    install: String,
}

/// How a program shows that it works.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ready {
    /// A line of its output has this text in it.
    Line(Template),
    /// A socket is bound to this UDP port.
    Udp(Template),
    /// A socket listens at this TCP port.
    Tcp(Template),
    /// This file exists.
    File(Template),
    /// A line of its output has this text in it, and after it the `ADDRESS:PORT` at which it receives.
    Address(Template),
}

impl Ready {
    fn template(&self) -> &Template {
        match self {
            Self::Line(text)
            | Self::Udp(text)
            | Self::Tcp(text)
            | Self::File(text)
            | Self::Address(text) => text,
        }
    }

    /// The condition that was waited for, in words.
    pub(super) fn describe(&self, values: &Values) -> anyhow::Result<String> {
        Ok(match self {
            Self::Line(text) => format!("no line with {:?}", text.expand(values)?),
            Self::Address(text) => {
                format!("no line with {:?} and an address", text.expand(values)?)
            }
            Self::Udp(port) => format!("nothing is bound to UDP port {}", port.expand(values)?),
            Self::Tcp(port) => format!("nothing listens at TCP port {}", port.expand(values)?),
            Self::File(path) => format!("no file {}", path.expand(values)?),
        })
    }
}

/// A program's arm as TOML states it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramSection {
    name: Option<Spanned<String>>,
    job: Option<Spanned<String>>,
    #[serde(default)]
    needs: Vec<Spanned<Prerequisite>>,
    #[serde(default)]
    files: BTreeMap<String, Spanned<Template>>,
    setup: Option<Spanned<CommandLine>>,
    command: Option<Spanned<CommandLine>>,
    ready: Option<Spanned<Ready>>,
    packets: Option<Spanned<CommandLine>>,
    client: Option<Spanned<CommandLine>>,
    #[serde(default)]
    values: Vec<Spanned<ReportedValue>>,
    teardown: Option<Spanned<CommandLine>>,
    timeout: Option<Spanned<Span>>,
}

/// How programs are arms of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramTerms {
    /// The placeholders of commands; none if programs cannot be arms.
    pub(crate) placeholders: &'static [Placeholder],
    /// A command with one of these runs to its end by itself: it is never ready.
    pub(crate) ending: &'static [&'static str],
    /// Whether the other commands have to tell how many packets they have seen.
    pub(crate) counts_packets: bool,
    /// Where arms are a server and a client: the metrics that the client can report.
    pub(crate) metrics: Option<fn() -> Vec<String>>,
}

impl ProgramTerms {
    /// The terms of a job without programs.
    pub(crate) const NONE: Self = Self {
        placeholders: &[],
        ending: &[],
        counts_packets: false,
        metrics: None,
    };
}

/// The rules that a program's section is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramRules<'a> {
    pub(crate) job: &'static str,
    pub(crate) terms: ProgramTerms,
    /// The names of the job's own arms.
    pub(crate) arms: &'a [&'static str],
}

impl ProgramSection {
    /// The name that the section states.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_ref().map(|name| name.get_ref().as_str())
    }

    /// The arm, under this name where the section states none.
    ///
    /// # Errors
    /// With the line of what makes no sense; `0..0` is the section's own place.
    pub(crate) fn check(
        self,
        section: Range<usize>,
        name: Option<&str>,
        document: &Document,
        rules: &ProgramRules<'_>,
    ) -> Result<ProgramArm, Error> {
        let wrong = |span: Range<usize>, what: String| Err(document.error(span, what));
        if rules.terms.placeholders.is_empty() {
            let what = format!("{} runs no external programs as arms", rules.job);
            return wrong(section, what);
        }
        let stated = self.name.as_ref();
        let span = stated.map_or_else(|| section.clone(), Spanned::span);
        let Some(name) = name.or_else(|| self.name()).map(str::to_owned) else {
            return wrong(
                section,
                "the arm has no name: add name = \"mine\"".to_owned(),
            );
        };
        if let Err(what) = check_name(&name, rules) {
            return wrong(span, what);
        }
        if let Some(job) = &self.job
            && job.get_ref() != rules.job
        {
            let what = format!(
                "arm {name:?} is of {}, and the experiment is of {}",
                job.get_ref(),
                rules.job
            );
            return wrong(job.span(), what);
        }
        if self.setup.is_none() && self.command.is_none() && self.client.is_none() {
            let what = format!("arm {name:?} runs nothing: add setup or command");
            return wrong(section, what);
        }
        self.check_placeholders(document, rules)?;
        self.check_needs(document)?;
        self.check_files(document)?;
        self.check_packets(section.clone(), document, rules)?;
        self.check_client(section, document, rules)?;
        self.check_ready(document, rules)?;
        let timeout = self.checked_timeout(document)?;
        Ok(ProgramArm {
            name,
            file: None,
            here: folder_of(document),
            needs: self.needs.into_iter().map(Spanned::into_inner).collect(),
            files: self
                .files
                .into_iter()
                .map(|(name, text)| (name, text.into_inner()))
                .collect(),
            setup: self.setup.map(Spanned::into_inner),
            command: self.command.map(Spanned::into_inner),
            ready: self.ready.map(Spanned::into_inner),
            packets: self.packets.map(Spanned::into_inner),
            client: self.client.map(Spanned::into_inner),
            values: self.values.into_iter().map(Spanned::into_inner).collect(),
            teardown: self.teardown.map(Spanned::into_inner),
            timeout,
        })
    }

    fn check_ready(&self, document: &Document, rules: &ProgramRules<'_>) -> Result<(), Error> {
        let ends = |command: &Spanned<CommandLine>| ends(command.get_ref(), rules);
        let (span, what) = match (&self.command, &self.ready) {
            (Some(command), None) if !ends(command) => (
                command.span(),
                "ready is missing: say how the command shows that it works, such as ready = { line = \"listening\" }",
            ),
            (Some(command), Some(ready)) if ends(command) => {
                (ready.span(), "the command runs to its end: leave ready out")
            }
            (None, Some(ready)) => (ready.span(), "ready describes command, and there is none"),
            _ => return Ok(()),
        };
        Err(document.error(span, what))
    }

    fn checked_timeout(&self, document: &Document) -> Result<Duration, Error> {
        let Some(timeout) = &self.timeout else {
            return Ok(TIMEOUT);
        };
        let time = timeout.get_ref().0;
        if time.is_zero() || time > MAX_TIMEOUT {
            let most = MAX_TIMEOUT.as_secs();
            let what = format!("timeout must be above 0 and at most {most}s");
            return Err(document.error(timeout.span(), what));
        }
        Ok(time)
    }

    fn check_packets(
        &self,
        section: Range<usize>,
        document: &Document,
        rules: &ProgramRules<'_>,
    ) -> Result<(), Error> {
        let command = self.command.as_ref();
        let ends = command.is_some_and(|command| ends(command.get_ref(), rules));
        let due = rules.terms.counts_packets && !ends;
        match &self.packets {
            Some(packets) if !due => {
                let what = "packets is for programs that see a live interface: leave it out";
                Err(document.error(packets.span(), what))
            }
            None if due => {
                let what = "packets is missing: a command that prints how many packets the program has seen";
                Err(document.error(section, what))
            }
            _ => Ok(()),
        }
    }

    fn check_client(
        &self,
        section: Range<usize>,
        document: &Document,
        rules: &ProgramRules<'_>,
    ) -> Result<(), Error> {
        let wrong = |span, what: &str| Err(document.error(span, what));
        let Some(metrics) = rules.terms.metrics else {
            return match (&self.client, self.values.first()) {
                (Some(client), _) => wrong(
                    client.span(),
                    &format!("{} has no clients: leave it out", rules.job),
                ),
                (None, Some(value)) => wrong(
                    value.span(),
                    &format!("{} measures by itself: leave values out", rules.job),
                ),
                (None, None) => Ok(()),
            };
        };
        if self.client.is_none() {
            return wrong(
                section,
                "client is missing: the command that asks the server",
            );
        }
        if self.values.is_empty() {
            let what = "values is missing: where the client's output has which metric, such as values = [{ metric = \"tcp_rr_us_p50\", json = \"p50\" }]";
            return wrong(section, what);
        }
        let metrics = metrics();
        let known: Vec<&str> = metrics.iter().map(String::as_str).collect();
        for value in &self.values {
            let metric = value.get_ref().metric.as_str();
            if !known.contains(&metric) {
                let hint = match nearest(metric, &known) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("there are: {}", known.join(", ")),
                };
                let what = format!("{} has no metric {metric:?}; {hint}", rules.job);
                return wrong(value.span(), &what);
            }
            if let Err(what) = value.get_ref().check() {
                return wrong(value.span(), &what);
            }
        }
        Ok(())
    }

    fn check_placeholders(
        &self,
        document: &Document,
        rules: &ProgramRules<'_>,
    ) -> Result<(), Error> {
        let commands = [
            &self.setup,
            &self.command,
            &self.packets,
            &self.client,
            &self.teardown,
        ];
        for command in commands.into_iter().flatten() {
            let templates = command.get_ref().templates();
            check_known(templates, command.span(), document, rules)?;
        }
        if let Some(ready) = &self.ready {
            let template = std::slice::from_ref(ready.get_ref().template());
            check_known(template, ready.span(), document, rules)?;
        }
        for text in self.files.values() {
            let template = std::slice::from_ref(text.get_ref());
            check_known(template, text.span(), document, rules)?;
        }
        Ok(())
    }

    fn check_needs(&self, document: &Document) -> Result<(), Error> {
        for need in &self.needs {
            if need.get_ref().program.is_some() == need.get_ref().file.is_some() {
                let what = "each of needs has either program or file";
                return Err(document.error(need.span(), what));
            }
        }
        Ok(())
    }

    fn check_files(&self, document: &Document) -> Result<(), Error> {
        for (name, text) in &self.files {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
                let what = format!(
                    "the file {name:?} has to have a plain name: it is written to {{folder}}"
                );
                return Err(document.error(text.span(), what));
            }
        }
        Ok(())
    }
}

/// The folder of a document's file, as an absolute path.
fn folder_of(document: &Document) -> PathBuf {
    let folder = Path::new(document.name()).parent();
    let folder = folder.unwrap_or_else(|| Path::new(""));
    // The working directory, where the file is named without a folder.
    std::path::absolute(Path::new(".").join(folder)).unwrap_or_else(|_| folder.to_owned())
}

/// Whether the command runs to its end by itself.
fn ends(command: &CommandLine, rules: &ProgramRules<'_>) -> bool {
    let mut names = command.templates().iter().flat_map(Template::placeholders);
    names.any(|name| rules.terms.ending.contains(&name))
}

/// Whether an arm of the user's own may have the name.
pub(crate) fn check_name(name: &str, rules: &ProgramRules<'_>) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!(
            "the name {name:?} of an arm has letters, digits, and -_. only"
        ));
    }
    if rules.arms.contains(&name) {
        return Err(format!(
            "{} has an arm {name:?} of its own: choose another name",
            rules.job
        ));
    }
    Ok(())
}

fn check_known(
    templates: &[Template],
    span: Range<usize>,
    document: &Document,
    rules: &ProgramRules<'_>,
) -> Result<(), Error> {
    let known: Vec<&str> = rules
        .terms
        .placeholders
        .iter()
        .map(|known| known.name)
        .collect();
    let mut names = templates.iter().flat_map(Template::placeholders);
    let Some(name) = names.find(|name| !known.contains(name)) else {
        return Ok(());
    };
    let hint = match nearest(name, &known) {
        Some(near) => format!("did you mean {{{near}}}?"),
        None => {
            let known: Vec<String> = known.iter().map(|name| format!("{{{name}}}")).collect();
            format!("there are: {}", known.join(", "))
        }
    };
    let what = format!(
        "{} has no placeholder {{{name}}}; {hint} ({{{{{name}}}}} is the text itself)",
        rules.job
    );
    Err(document.error(span, what))
}

impl ProgramArm {
    /// The arm that a file of its own states, under this name.
    ///
    /// # Errors
    /// With the line of what is not TOML, not known, or makes no sense.
    pub(crate) fn read(
        document: &Document,
        name: Option<&str>,
        rules: &ProgramRules<'_>,
    ) -> Result<Self, Error> {
        let section: ProgramSection = document.parse()?;
        section.check(0..0, name, document, rules)
    }

    /// Why this machine cannot run it.
    pub(crate) fn check(&self) -> Result<(), Missing> {
        self.needs.iter().try_for_each(Prerequisite::check)?;
        let programs = self.commands();
        for name in programs.filter_map(CommandLine::program) {
            let remedy = format!("install it, or correct the arm {:?}", self.name);
            if !name.contains('/') {
                program(name, &remedy)?;
            } else if !Path::new(name).is_file() {
                let what = format!(
                    "{name} does not exist; paths are looked for from the working directory"
                );
                return Err(Missing::new(what, &remedy));
            }
        }
        Ok(())
    }

    fn commands(&self) -> impl Iterator<Item = &CommandLine> {
        let commands = [
            &self.setup,
            &self.command,
            &self.packets,
            &self.client,
            &self.teardown,
        ];
        commands.into_iter().flatten()
    }

    /// Whether anything of it uses the placeholder.
    pub(crate) fn uses(&self, name: &str) -> bool {
        let commands = self.commands().flat_map(CommandLine::templates);
        let ready = self.ready.iter().map(Ready::template);
        let mut all = commands.chain(ready).chain(self.files.values());
        all.any(|template| template.placeholders().any(|known| known == name))
    }

    /// The commands that it runs, as the record states them.
    pub(crate) fn identity(&self) -> Program {
        let commands = [&self.setup, &self.command, &self.client];
        let commands = commands.into_iter().flatten();
        let commands: Vec<String> = commands.map(CommandLine::to_string).collect();
        Program {
            file: self.file.clone(),
            command: commands.join("; "),
        }
    }
}

impl Prerequisite {
    fn check(&self) -> Result<(), Missing> {
        if let Some(name) = &self.program {
            return program(name, &self.install);
        }
        match &self.file {
            Some(file) if !Path::new(file).exists() => Err(Missing::new(
                format!("{file} does not exist"),
                &self.install,
            )),
            _ => Ok(()),
        }
    }
}
