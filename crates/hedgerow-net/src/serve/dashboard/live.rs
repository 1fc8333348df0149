//! What changes. The source is asked about once a second, however many pages are open.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use futures_util::stream;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, MissedTickBehavior};

use crate::serve::metrics::Metrics;
use crate::serve::status::{Point, Source, Status};

/// Most points of the history in an answer.
pub(super) const MAX_POINTS: usize = 2_000;
/// Most pages that receive events at once.
const MAX_LISTENERS: usize = 64;
/// How often they receive the status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How long an answer is used again.
const MAX_ANSWER_AGE: Duration = Duration::from_millis(500);

pub(super) struct Live {
    source: Arc<dyn Source>,
    metrics: Metrics,
    status: Kept<Snapshot>,
    history: Kept<Vec<Point>>,
    ready: Kept<Result<(), String>>,
    listeners: Arc<Semaphore>,
}

/// A status, and the same as text.
pub(super) struct Snapshot {
    pub(super) status: Status,
    pub(super) json: String,
}

impl Live {
    pub(super) fn new(source: Arc<dyn Source>, metrics: Metrics, listeners: usize) -> Self {
        Self {
            source,
            metrics,
            status: Kept::default(),
            history: Kept::default(),
            ready: Kept::default(),
            listeners: Arc::new(Semaphore::new(listeners.min(MAX_LISTENERS))),
        }
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The current status; none if the source failed, here and below.
    pub(super) async fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let source = self.source.clone();
        let make = move || {
            let status = source.status();
            Some(Snapshot { json: serde_json::to_string(&status).ok()?, status })
        };
        self.status.fresh(make).await
    }

    pub(super) async fn history(&self, most: usize) -> Option<Vec<Point>> {
        let source = self.source.clone();
        let points = self.history.fresh(move || Some(source.history(MAX_POINTS))).await?;
        Some(thinned(&points, most))
    }

    pub(super) async fn is_ready(&self) -> Option<Arc<Result<(), String>>> {
        let source = self.source.clone();
        self.ready.fresh(move || Some(source.is_ready())).await
    }

    /// A status now and every second; none if too many pages listen. A slow reader misses some.
    pub(super) fn events(self: &Arc<Self>) -> Option<impl IntoResponse + use<>> {
        let slot = self.listeners.clone().try_acquire_owned().ok()?;
        let mut beat = tokio::time::interval(STATUS_INTERVAL);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let events = stream::unfold((self.clone(), beat, slot), async |(live, mut beat, slot)| {
            beat.tick().await;
            let snapshot = live.snapshot().await?;
            let event = Event::default().event("status").data(&snapshot.json);
            Some((Ok::<_, Infallible>(event), (live, beat, slot)))
        });
        Some(Sse::new(events))
    }
}

/// The latest answer to a question, with the moment it was given.
type Answer<T> = Option<(Instant, Arc<T>)>;

struct Kept<T>(Arc<Mutex<Answer<T>>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Send + Sync + 'static> Kept<T> {
    /// The latest answer, or a new one if that is old. One is made at a time, also if the request
    /// for it was dropped.
    async fn fresh(&self, make: impl FnOnce() -> Option<T> + Send + 'static) -> Option<Arc<T>> {
        let mut kept = self.0.clone().lock_owned().await;
        if let Some((made, answer)) = &*kept
            && made.elapsed() < MAX_ANSWER_AGE
        {
            return Some(answer.clone());
        }
        let making = move || {
            let answer = Arc::new(make()?);
            *kept = Some((Instant::now(), answer.clone()));
            Some(answer)
        };
        tokio::task::spawn_blocking(making).await.ok().flatten()
    }
}

/// At most `most` points, evenly spaced, with the first and the last; if it is one, the last.
fn thinned(points: &[Point], most: usize) -> Vec<Point> {
    let count = points.len();
    if count <= most {
        return points.to_vec();
    }
    match most {
        0 => Vec::new(),
        1 => points[count - 1..].to_vec(),
        _ => (0..most).map(|i| points[i * (count - 1) / (most - 1)].clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    fn points(count: u64) -> Vec<Point> {
        let point = |round| Point {
            round,
            at_ms: 0,
            mse: None,
            window_mse: None,
            selected: None,
            uploads: 0,
            bytes_up: 0,
            bytes_down: 0,
        };
        (0..count).map(point).collect()
    }

    #[test]
    fn thinning_keeps_both_ends_and_is_even() {
        let rounds =
            |count, most| thinned(&points(count), most).iter().map(|p| p.round).collect::<Vec<_>>();
        assert_eq!(rounds(3, 5), [0, 1, 2]);
        assert_eq!(rounds(5, 5), [0, 1, 2, 3, 4]);
        assert_eq!(rounds(9, 3), [0, 4, 8]);
        assert_eq!(rounds(9, 2), [0, 8]);
        assert_eq!(rounds(9, 1), [8]);
        assert_eq!(rounds(9, 0), [0; 0]);
        assert_eq!(rounds(0, 1), [0; 0]);
        let steps: Vec<_> = rounds(1_999, 700).windows(2).map(|w| w[1] - w[0]).collect();
        assert!(steps.iter().all(|step| (2..=3).contains(step)), "{steps:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_serves_many_for_half_a_second() {
        let kept = Kept::default();
        let asked = Arc::new(AtomicUsize::new(0));
        let ask = || {
            let asked = asked.clone();
            kept.fresh(move || Some(asked.fetch_add(1, SeqCst)))
        };
        assert_eq!(ask().await.as_deref(), Some(&0));
        for _ in 0..100 {
            ask().await;
        }
        assert_eq!(asked.load(SeqCst), 1);
        tokio::time::advance(MAX_ANSWER_AGE).await;
        assert_eq!(ask().await.as_deref(), Some(&1));
    }

    #[tokio::test]
    async fn a_question_that_failed_is_asked_again() {
        let kept = Kept::default();
        assert_eq!(kept.fresh(|| None::<u8>).await, None);
        assert_eq!(kept.fresh(|| panic!("the source fails")).await, None);
        assert_eq!(kept.fresh(|| Some(7)).await.as_deref(), Some(&7));
    }
}
