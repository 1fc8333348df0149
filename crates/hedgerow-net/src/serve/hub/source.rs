//! What the dashboard sees of a [`Hub`].

use hedgerow_data::schema::TableSchema;

use super::{Hub, Inner, now, shortage, unix_ms};
use crate::coordinator::records::{Standing, StandingRecord};
use crate::coordinator::{Coordinator, Member, Opening, mean};
use crate::serve::status::{
    ColumnStatus, ImportanceStatus, KernelStatus, MAX_COLUMNS_SHOWN, MAX_NODES_SHOWN, NodeState,
    NodeStatus, Point, SCHEMA, Source, Status,
};

impl Source for Hub {
    fn status(&self) -> Status {
        let wire = self.wire();
        let at = now();
        let inner = self.lock();
        let Inner { coordinator, failure, events, settings, .. } = &*inner;
        let known = coordinator.members().iter().filter(|member| member.is_known()).count();
        let (totals, window, opening) =
            (coordinator.totals(), coordinator.window(), coordinator.opening());
        let config = self.plan.config();
        let naive = 4 * self.plan.naive_numbers();
        let selected = opening.kernels.map(|kernels| kernels.current);
        let ms = |since| at.saturating_duration_since(since).as_millis() as u64;
        Status {
            schema: SCHEMA,
            run: self.run.id.clone(),
            method: self.plan.method().name.to_owned(),
            budget: config.budget as u64,
            at_ms: unix_ms(),
            uptime_ms: ms(self.started),
            round: opening.round,
            open_ms: ms(coordinator.opened_at()),
            uploads: coordinator.uploads() as u64,
            needed: coordinator.needed().map(|needed| needed as u64),
            shortage: shortage(coordinator),
            quorum: coordinator.rules().describe(),
            connected: coordinator.connected() as u64,
            nodes_known: known as u64,
            samples: totals.samples,
            mse: coordinator.error(),
            window_mse: window.mse(),
            window_rounds: window.rounds() as u64,
            mean_forecast_mse: coordinator.mean_forecast_error(),
            scale_version: opening.scale_version,
            selected,
            kernels: if selected.is_some() { self.kernels(coordinator) } else { vec![] },
            rounds_per_second: inner.rounds_per_second(at),
            late: totals.late,
            refused: totals.refused,
            messages_up: totals.messages_up,
            messages_down: totals.messages_down,
            wire_up: wire.up,
            wire_down: wire.down,
            naive_up: naive * totals.uploads,
            naive_down: naive * totals.broadcasts,
            store_ok: failure.is_none(),
            paused: coordinator.is_paused(),
            settings_changed: settings.differences(),
            events: events.shown(),
            nodes: nodes(coordinator),
            nodes_left_out: known.saturating_sub(MAX_NODES_SHOWN) as u64,
            importance: self.importance(opening),
        }
    }

    fn history(&self, most: usize) -> Vec<Point> {
        self.lock().history.points(most)
    }

    fn is_ready(&self) -> Result<(), String> {
        let inner = self.lock();
        match &inner.failure {
            _ if inner.writer.is_none() => Err("the server is going down".to_owned()),
            Some(failure) => Err(failure.message.clone()),
            None => Ok(()),
        }
    }
}

impl Hub {
    fn kernels(&self, coordinator: &Coordinator) -> Vec<KernelStatus> {
        let kernels = &self.plan.config().kernels;
        let status = |(at, kernel): (usize, &hedgerow::features::Kernel)| {
            let (selected_share, vote_share) = coordinator.window().shares(at);
            KernelStatus { name: kernel.label(), selected_share, vote_share }
        };
        kernels.iter().enumerate().map(status).collect()
    }

    fn importance(&self, opening: &Opening) -> Option<ImportanceStatus> {
        let (shared, unit) = opening.importance.as_ref()?;
        let column = |(place, name): (usize, String)| {
            let group = shared.groups()[place];
            let windows = shared.windows().iter().map(|window| window.groups[place]);
            ColumnStatus {
                name,
                increase: group.mean() * unit,
                recent: group.recent * unit,
                measured: group.measured,
                windows: windows.map(|(sum, count)| mean(sum * unit, count)).collect(),
            }
        };
        let names = TableSchema::group_names(&self.plan).into_iter().enumerate();
        let mut columns: Vec<ColumnStatus> = names.map(column).collect();
        let left_out = columns.len().saturating_sub(MAX_COLUMNS_SHOWN) as u64;
        columns.sort_by(|one, other| other.increase.total_cmp(&one.increase));
        columns.truncate(MAX_COLUMNS_SHOWN);
        let rounds = shared.windows().iter().map(|window| window.round).collect();
        let has_label_unit = self.plan.importance_has_unit();
        Some(ImportanceStatus { columns, left_out, rounds, has_label_unit })
    }
}

/// Connected nodes first, and of them those whose uploads look wrong.
fn nodes(coordinator: &Coordinator) -> Vec<NodeStatus> {
    let members = coordinator.members();
    let is_suspect = |member: &&Member| coordinator.suspect(member.record.number).is_some();
    let here = || members.iter().filter(|member| member.is_connected());
    let suspects = here().filter(is_suspect);
    let here = here().filter(|member| !is_suspect(member));
    let away = members.iter().filter(|member| member.is_known() && !member.is_connected());
    let shown = suspects.chain(here).chain(away).take(MAX_NODES_SHOWN);
    shown.map(|member| node(coordinator, member)).collect()
}

fn state(member: &Member, standing: Option<&StandingRecord>, is_suspect: bool) -> NodeState {
    match standing.map(|known| known.standing) {
        Some(Standing::Banned) => NodeState::Banned,
        Some(Standing::Quarantined) => NodeState::Quarantined,
        Some(Standing::Revoked) => NodeState::Revoked,
        None if is_suspect && member.is_connected() => NodeState::Suspect,
        None if member.silent_for().is_some() => NodeState::Silent,
        None if member.is_connected() => NodeState::Connected,
        None => NodeState::Away,
    }
}

pub(super) fn node(coordinator: &Coordinator, member: &Member) -> NodeStatus {
    let record = &member.record;
    let standing = coordinator.standing(&record.name);
    let suspect = coordinator.suspect(record.number);
    NodeStatus {
        number: record.number,
        name: record.name.clone(),
        state: state(member, standing, suspect.is_some()),
        connected: member.is_connected(),
        reason: match (standing, suspect, member.silent_for()) {
            (Some(known), ..) => known.reason.clone(),
            (None, Some(suspect), _) if member.is_connected() => {
                let counts = if suspect.is_excluded { "are left out" } else { "look wrong" };
                format!("uploads {counts}: {}", suspect.difference)
            }
            (None, _, Some(missed)) => {
                format!("missed {missed} deadlines in a row: rounds don't wait for it")
            }
            (None, _, None) => String::new(),
        },
        last_seen_ms: record.last_seen_ms,
        last_sample_ms: member.last_sample_ms,
        round: member.round,
        samples: record.samples,
        mse: member.mse(),
        window_mse: member.recent_mse(),
        mean_forecast_mse: member.mean_forecast_error,
        bytes_up: record.bytes_up,
        bytes_down: record.bytes_down,
        uploads: record.uploads,
        refused: record.refused,
        software: member.software.clone(),
        address: member.address.clone(),
    }
}
