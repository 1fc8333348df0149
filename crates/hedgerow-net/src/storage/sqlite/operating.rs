//! What operators do to a [`Store`]: decisions, and going back.

use rusqlite::Connection;

use super::{KEPT_WHOLE, Store, decisions, nodes, opening, rounds, snapshots};
use crate::audit::Draft;
use crate::coordinator::records::{Change, Snapshot, Target};
use crate::storage::{CheckState, RolledBack, StoreError};

impl Store {
    /// Runs `work` and adds an entry to the audit log, in one transaction.
    pub(super) fn write_with<T>(
        &mut self,
        entry: &Draft,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let entry = self.chain.next(entry);
        let done = self.write(|connection| {
            let done = work(connection)?;
            decisions::append(connection, &entry)?;
            Ok(done)
        })?;
        self.chain = crate::audit::Chain { number: entry.number, hash: entry.hash };
        Ok(done)
    }

    pub(super) fn store_decision(
        &mut self,
        change: &Change,
        entry: &Draft,
    ) -> Result<(), StoreError> {
        let mut is_unknown = false;
        let stored = self.write_with(entry, |connection| match change {
            Change::Nothing => Ok(()),
            Change::Standing(record) => decisions::write_standing(connection, record),
            Change::NoStanding { node } => decisions::delete_standing(connection, node),
            Change::Paused(is_paused) => {
                let value = is_paused.then_some("1");
                decisions::write_fact(connection, decisions::PAUSED, value)
            }
            Change::Lists(numbers) => {
                decisions::write_fact(connection, decisions::LISTS, Some(numbers))
            }
            Change::Setting { key, value } => {
                decisions::write_setting(connection, key, value.as_deref())
            }
            Change::Forget { number, node } => {
                is_unknown = !nodes::delete(connection, *number, node)?;
                if is_unknown { Err(rusqlite::Error::QueryReturnedNoRows) } else { Ok(()) }
            }
        });
        match change {
            Change::Forget { number, node } if is_unknown => Err(StoreError::NoSuchNode {
                path: self.view.path.clone(),
                number: *number,
                name: node.clone(),
            }),
            _ => stored,
        }
    }

    pub(super) fn set_back(
        &mut self,
        to: Target,
        (actor, at_ms): (&str, u64),
        check: CheckState<'_>,
    ) -> Result<RolledBack, StoreError> {
        let all = self.retention.snapshots();
        let missing = || no_snapshot(to, &all);
        let found = match to {
            Target::Round(round) => all.iter().find(|snapshot| snapshot.round == round),
            Target::Time(time) => all.iter().rev().find(|snapshot| snapshot.at_ms <= time),
        };
        let to = found.ok_or_else(missing)?.round;
        let saved = self.snapshot(to)?.ok_or_else(missing)?;
        let unfit = |reason| StoreError::Unfit { path: self.view.path.clone(), reason };
        check(&saved).map_err(unfit)?;
        let mut retention = self.retention.clone();
        let dropped = retention.go_back(to);
        let from = self.retention.latest().map_or(0, |latest| latest.round);
        let entry = Draft {
            at_ms,
            actor: actor.to_owned(),
            action: "rollback".to_owned(),
            subject: format!("round {to}"),
            details: format!("from round {from}"),
        };
        let generation = self.generation;
        let epoch = self.write_with(&entry, |connection| {
            snapshots::drop_all(connection, &dropped)?;
            snapshots::stamp(connection, generation)?;
            rounds::go_back(connection, to)?;
            opening::draw_epoch(connection)
        })?;
        self.retention = retention;
        let history = self.view.history(2 * KEPT_WHOLE as usize)?;
        Ok(RolledBack { saved, history, epoch })
    }
}

fn no_snapshot(to: Target, all: &[Snapshot]) -> StoreError {
    const MOST: usize = 8;
    let asked = match to {
        Target::Round(round) => format!("of round {round}"),
        Target::Time(time) => format!("that was stored at {time} ms of Unix time or before"),
    };
    let there = match all {
        [] => "there is none yet".to_owned(),
        [first, .., last] => {
            // The nearest rounds help most.
            let distance = |snapshot: &Snapshot| match to {
                Target::Round(round) => snapshot.round.abs_diff(round),
                Target::Time(time) => snapshot.at_ms.abs_diff(time),
            };
            let mut nearest: Vec<&Snapshot> = all.iter().collect();
            nearest.sort_by_key(|snapshot| distance(snapshot));
            nearest.truncate(MOST);
            let mut rounds: Vec<u64> = nearest.iter().map(|snapshot| snapshot.round).collect();
            rounds.sort_unstable();
            let rounds: Vec<String> = rounds.iter().map(u64::to_string).collect();
            format!(
                "there are {} from round {} to {}; the nearest: {}",
                all.len(),
                first.round,
                last.round,
                rounds.join(", ")
            )
        }
        [only] => format!("there is only round {}", only.round),
    };
    StoreError::NoSnapshot { asked, there }
}
