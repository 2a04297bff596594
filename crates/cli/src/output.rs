//! How results are shown: aligned columns, and the progress of resources on a terminal or in a pipe.

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write, stderr, stdout},
    time::Duration,
};

use anyhow::Result;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use kaos_local::ResourceState;
use serde::Serialize;

use crate::args::Format;

/// Prints a value for programs.
pub(crate) fn print(format: Format, value: &impl Serialize) -> Result<()> {
    let text = match format {
        Format::Json => serde_json::to_string_pretty(value)?,
        Format::Yaml => serde_saphyr::to_string(value)?,
    };
    writeln!(stdout(), "{}", text.trim_end())?;
    Ok(())
}

/// Rows under a heading, each column as wide as its widest cell.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells
            .chain(heading.get(column).map(|cell| cell.len()))
            .max()
            .unwrap_or(0)
    };
    let line = |cells: Vec<&str>| {
        let last = cells.len().saturating_sub(1);
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            if column == last {
                (*cell).to_owned()
            } else {
                format!("{cell:<0$}", width(column))
            }
        });
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    let mut lines = vec![line(heading.to_vec())];
    lines.extend(
        rows.iter()
            .map(|row| line(row.iter().map(String::as_str).collect())),
    );
    lines.join("\n")
}

/// Shows states as they change: a line for each resource that is redrawn on a terminal, and a line for each
/// change in a pipe. Everything goes to standard error.
pub(crate) enum Progress {
    Terminal {
        all: MultiProgress,
        bars: BTreeMap<String, ProgressBar>,
    },
    Pipe {
        last: BTreeMap<String, String>,
    },
}

impl Progress {
    pub(crate) fn new() -> Self {
        if stderr().is_terminal() {
            Self::Terminal {
                all: MultiProgress::new(),
                bars: BTreeMap::new(),
            }
        } else {
            Self::Pipe {
                last: BTreeMap::new(),
            }
        }
    }

    /// Shows the present states.
    pub(crate) fn show(&mut self, states: &[ResourceState]) {
        for state in states {
            let key = resource_name(state);
            let text = told(state);
            match self {
                Self::Terminal { all, bars } => {
                    let bar = bars.entry(key.clone()).or_insert_with(|| spinner(all));
                    let mark = if state.ready { "✓ " } else { "" };
                    bar.set_message(format!("{mark}{key:<32} {text}"));
                    if state.ready {
                        // A finished bar keeps its line, and comes back to life when the state changes.
                        bar.disable_steady_tick();
                        bar.set_style(plain_style());
                    } else {
                        bar.set_style(spinner_style());
                        bar.enable_steady_tick(Duration::from_millis(100));
                    }
                    bar.tick();
                }
                Self::Pipe { last } => {
                    if last.get(&key) != Some(&text) {
                        eprintln!("{key:<32} {text}");
                        last.insert(key, text);
                    }
                }
            }
        }
        let known: Vec<String> = states.iter().map(resource_name).collect();
        match self {
            Self::Terminal { bars, .. } => bars.retain(|key, bar| {
                let keep = known.contains(key);
                if !keep {
                    bar.finish_and_clear();
                }
                keep
            }),
            Self::Pipe { last } => last.retain(|key, _| known.contains(key)),
        }
    }

    /// Leaves the lines as they are and starts anew below them.
    pub(crate) fn leave(&mut self) {
        if let Self::Terminal { bars, .. } = self {
            for bar in std::mem::take(bars).into_values() {
                bar.abandon();
            }
        }
    }
}

/// `agent/assistant`, with the namespace where it is not the default one.
pub(crate) fn resource_name(state: &ResourceState) -> String {
    let kind = state.kind.to_lowercase();
    if state.namespace == "default" {
        format!("{kind}/{}", state.name)
    } else {
        format!("{kind}/{} in {}", state.name, state.namespace)
    }
}

fn told(state: &ResourceState) -> String {
    if state.message.is_empty() {
        state.phase.clone()
    } else {
        format!(
            "{}: {}",
            state.phase,
            state.message.lines().collect::<Vec<_>>().join(" / ")
        )
    }
}

fn spinner(all: &MultiProgress) -> ProgressBar {
    let bar = all.add(ProgressBar::new_spinner());
    bar.set_style(spinner_style());
    bar
}

fn spinner_style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn plain_style() -> ProgressStyle {
    ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let rows = vec![vec!["a".to_owned(), "Ready".to_owned(), String::new()]];
        assert_eq!(
            table(&["NAME", "PHASE", "MESSAGE"], &rows),
            "NAME   PHASE   MESSAGE\na      Ready"
        );
    }
}
