//! Fig 6: Filebench's personalities.

use vellum::MappingKind;
use vellum::media::MediaChoice;
use vellum::reading::Rule;

use super::subjects::Setting;
use crate::Result;
use crate::progress::bar;
use crate::report::Outcome;
use crate::variant::Variant;
use crate::workloads::{Subject, figure_of, filebench};

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let workloads = options.personalities.workloads();
    let plan = workloads.filebench(options.rounds, &options.disk)?;
    let logged = Subject {
        variant: Variant {
            mapping: MappingKind::Extent,
            layout_score: 1000,
        },
        rule: Rule::default(),
        media: MediaChoice::Logged,
    };
    let peers = [setting.peer_name()];
    let progress = bar(options.output.printing, plan.steps(1 + peers.len()));
    let rows = plan.measure(&[logged], &peers, setting.interrupt, &progress)?;
    progress.finish_and_clear();
    Ok(Outcome {
        figures: figure_of(filebench::OF_DISKS, &rows),
        targets: Vec::new(),
    })
}
