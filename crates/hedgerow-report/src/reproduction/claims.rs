//! The paper's claims, compared with the measurements per data set.

use super::checks::{self, CLOSE_RATIO, HELD_SHARE, MUCH_WORSE, SUBLINEAR};
use super::measured::NEARLY_ALL;
use super::{Panel, Reproduction};
use crate::figures::number::{listed, percent};
use hedgerow_lab::results::Results;

/// Something the paper says, and whether it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// One letter to refer to it by.
    pub letter: char,
    /// What is claimed, in a sentence without its full stop.
    pub statement: String,
    /// When it counts as true.
    pub criterion: String,
    /// One per data set with results.
    pub findings: Vec<Finding>,
}

/// Whether a claim holds on one data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The data set.
    pub title: String,
    /// Whether it holds.
    pub verdict: Verdict,
    /// The numbers behind it, in sentences.
    pub why: String,
}

/// Whether a measurement agrees with a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Agrees,
    /// It does not.
    Disagrees,
    /// What would decide was not measured.
    Unknown,
}

impl Verdict {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Disagrees => "does not agree",
            Self::Unknown => "not known",
        }
    }

    pub(super) fn of(agrees: bool) -> Self {
        if agrees { Self::Agrees } else { Self::Disagrees }
    }
}

impl Claim {
    /// `holds on 5 of 8 data sets; not on Wave, Traffic and Temperature`
    pub fn summary(&self) -> String {
        let titles = |verdict| -> Vec<&str> {
            let of_this = self.findings.iter().filter(|finding| finding.verdict == verdict);
            of_this.map(|finding| finding.title.as_str()).collect()
        };
        let (agree, disagree) = (titles(Verdict::Agrees).len(), titles(Verdict::Disagrees));
        let unknown = titles(Verdict::Unknown);
        let decided = agree + disagree.len();
        let mut summary = match decided {
            0 => return "could not be checked".to_owned(),
            1 => format!("holds on {agree} of 1 data set"),
            _ => format!("holds on {agree} of {decided} data sets"),
        };
        if !disagree.is_empty() {
            summary += &format!("; not on {}", listed(&disagree));
        }
        if !unknown.is_empty() {
            summary += &format!("; not known on {}", listed(&unknown));
        }
        summary
    }
}

/// All claims of the paper, and one more that a reader would want to know about.
pub fn claims(reproduction: &Reproduction) -> Vec<Claim> {
    type Check = fn(&Results) -> Option<(Verdict, String)>;
    let all: [(char, &str, String, Check); 6] = [
        (
            'a',
            "mk comes close to the best single kernel",
            format!("MSE at most {CLOSE_RATIO} times that of sk with the best kernel"),
            |results| Some(checks::close_to_best(results)),
        ),
        (
            'b',
            "mk comes close to the naive extension at 1/P of its communication",
            format!(
                "MSE at most {CLOSE_RATIO} times that of naive, and naive sends P times as many numbers up"
            ),
            |results| Some(checks::close_to_naive(results)),
        ),
        (
            'c',
            "the selection converges to the best kernel",
            format!(
                "at least {} of trials have selected it throughout the last {} of rounds",
                percent(NEARLY_ALL),
                percent(HELD_SHARE)
            ),
            |results| Some(checks::converges(results)),
        ),
        (
            'd',
            "the regret grows sublinearly",
            format!(
                "exponent of t, fitted over the last two decades of rounds, at most {SUBLINEAR}; the theorem's √t is 0.5"
            ),
            |results| Some(checks::sublinear(results)),
        ),
        (
            'e',
            "choosing a kernel beforehand is a risk: the worst one is much worse",
            format!("MSE of sk with the worst kernel at least {MUCH_WORSE} times that of the best"),
            |results| Some(checks::choice_matters(results)),
        ),
        (
            BEYOND,
            "beyond the paper: mk beats rules that learn nothing",
            "MSE below that of predicting the node's last label, the mean of its labels so far, and the previous label of the whole stream"
                .to_owned(),
            checks::beats_trivial,
        ),
    ];
    let claim = |(letter, statement, criterion, check): (char, &str, String, Check)| {
        let finding = |(panel, results): (&Panel, &Results)| {
            let (verdict, why) = check(results)?;
            Some(Finding { title: panel.title.clone(), verdict, why })
        };
        let findings = reproduction.found().filter_map(finding).collect();
        Claim { letter, statement: statement.to_owned(), criterion, findings }
    };
    let is_checked = |claim: &Claim| claim.letter != BEYOND || !claim.findings.is_empty();
    all.into_iter().map(claim).filter(is_checked).collect()
}

/// Not a claim of the paper, whose figures have no rule that learns nothing. It is left out if no
/// run has one.
const BEYOND: char = 'f';

#[cfg(test)]
mod tests {
    use super::super::tests::reproduction;
    use super::*;

    #[test]
    fn every_claim_is_checked_on_every_data_set_that_was_there() {
        let claims = claims(&reproduction());
        assert_eq!(claims.iter().map(|claim| claim.letter).collect::<String>(), "abcdef");
        for claim in &claims[..5] {
            let titles: Vec<&str> =
                claim.findings.iter().map(|finding| finding.title.as_str()).collect();
            assert_eq!(titles, ["Twitter", "Traffic"]);
            assert_eq!(claim.summary(), "holds on 2 of 2 data sets", "{claim:?}");
        }
        assert_eq!(claims[5].summary(), "holds on 0 of 1 data set; not on Traffic");
        assert_eq!(
            claims[5].findings[0].why,
            "mk has 2.00 times the MSE of last and 0.250 times the MSE of mean."
        );
        let mut without = reproduction();
        without.figures.truncate(1);
        assert_eq!(super::claims(&without).len(), 5);
    }

    #[test]
    fn a_summary_names_the_exceptions() {
        let finding =
            |title: &str, verdict| Finding { title: title.into(), verdict, why: String::new() };
        let mut claim = Claim {
            letter: 'a',
            statement: String::new(),
            criterion: String::new(),
            findings: vec![
                finding("One", Verdict::Agrees),
                finding("Two", Verdict::Disagrees),
                finding("Three", Verdict::Disagrees),
                finding("Four", Verdict::Disagrees),
                finding("Five", Verdict::Unknown),
            ],
        };
        assert_eq!(
            claim.summary(),
            "holds on 1 of 4 data sets; not on Two, Three and Four; not known on Five"
        );
        claim.findings.clear();
        assert_eq!(claim.summary(), "could not be checked");
    }
}
