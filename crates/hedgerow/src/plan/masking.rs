//! What a [`Plan`] says of masked uploads.

use alloc::format;

use super::checks::{at_least, at_most};
use super::{Plan, PlanConfig, PlanError, Scaling};
use crate::aggregation::Aggregation;
use crate::codec::Coding;
use crate::importance::ImportanceScope;
use crate::masking::{LEAST, MaskRules, MaskedSums, Privacy};
use crate::method::{MethodInfo, Setup};

impl Plan {
    /// What nodes, relays, server and mask holders agree on, if uploads are masked.
    pub fn mask_rules(&self) -> Option<MaskRules> {
        let PlanConfig { privacy: Privacy::Masked(settings), nodes, .. } = self.config() else {
            return None;
        };
        MaskRules::new(settings, &self.layout(), *nodes, self.outputs())
    }

    /// What squared errors are divided by to be in the scaled unit of the first label; 1 without a
    /// scale.
    pub(crate) fn error_unit(&self) -> f64 {
        let Scaling::Fixed(scale) = &self.config().scaling else { return 1.0 };
        let label = scale.axis(self.inputs());
        let size = label.raw(1.0) - label.raw(0.0);
        size * size
    }

    /// Whether uploads are masked.
    pub fn is_masked(&self) -> bool {
        !self.config().privacy.is_none()
    }
}

/// Refuses what sums say too little for. Methods that send sums of whole histories have cohorts.
pub(super) fn check(
    info: &MethodInfo,
    setup: &Setup,
    config: &mut PlanConfig,
) -> Result<(), PlanError> {
    let PlanConfig { nodes, outputs, aggregation, .. } = *config;
    let (compression, importance) = (config.compression.up, config.importance);
    let is_online = matches!(config.scaling, Scaling::Online { .. });
    let Privacy::Masked(settings) = &mut config.privacy else { return Ok(()) };
    at_least("privacy.least", LEAST, settings.least)?;
    at_most("privacy.least", nodes, settings.least)?;
    at_least("privacy.holders", 1, settings.holders.len())?;
    let masked = |what| Err(PlanError::Masked { what });
    let MaskedSums { holders, .. } = &*settings;
    if let Some(twice) = holders.iter().enumerate().find(|(at, key)| holders[..*at].contains(key)) {
        return masked(format!("with the mask holder {} named twice", twice.1));
    }
    if aggregation != Aggregation::Mean {
        return masked(format!("with aggregation = {aggregation}: it reads single uploads"));
    }
    if compression != Coding::default() {
        return masked("with compression.up: compressed uploads can't be added up".into());
    }
    if is_online {
        return masked("with scaling = online: reports about scale aren't sums".into());
    }
    if importance == ImportanceScope::Shared {
        return masked(
            "with importance = shared: it is sent with uploads, not in their sum".into(),
        );
    }
    let layout = (info.layout)(setup);
    if layout.upload.is_unbounded() {
        settings.cohort.get_or_insert(settings.least);
    }
    if let Some(cohort) = settings.cohort {
        at_least("privacy.cohort", settings.least, cohort)?;
        at_most("privacy.cohort", nodes, cohort)?;
    }
    match MaskRules::new(settings, &layout, nodes, outputs) {
        Some(_) => Ok(()),
        None => masked(format!("with {}: the sum of its uploads doesn't say enough", info.name)),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::codec::{Compression, NumberFormat};
    use crate::masking::SecretKey;
    use crate::method::{Average, MkOptions};
    use crate::scaling::ScaleKind;

    fn masked(settings: MaskedSums) -> PlanConfig {
        PlanConfig::default().privacy(Privacy::Masked(settings))
    }

    #[test]
    fn what_needs_more_than_sums_is_refused_by_name() {
        let [first, second] = [1, 2].map(|byte| SecretKey::from_bytes([byte; 32]).public());
        let good = MaskedSums::new(vec![first, second]);
        let with = |change: fn(&mut MaskedSums)| {
            let mut settings = good.clone();
            change(&mut settings);
            masked(settings)
        };
        let method = |name: &str| masked(good.clone()).method(name.parse().unwrap());
        let voters = MkOptions { average: Average::Voters, ..MkOptions::default() };
        let mut compression = Compression::default();
        compression.up.numbers = NumberFormat::Bits8;
        let plan = |config: PlanConfig| Plan::new(config);
        for (bad, parts) in [
            (with(|settings| settings.least = 9), ["privacy.least", "at least 10, but is 9"]),
            (with(|settings| settings.least = 21), ["privacy.least", "at most 20, but is 21"]),
            (with(|settings| settings.cohort = Some(19)), ["privacy.cohort", "at least 20"]),
            (with(|settings| settings.cohort = Some(21)), ["privacy.cohort", "at most 20"]),
            (with(|settings| settings.holders.clear()), ["privacy.holders", "is 0"]),
            (with(|settings| settings.holders[1] = settings.holders[0]), ["holder", "named twice"]),
            (masked(good.clone()).aggregation(Aggregation::Median), ["can't be masked", "median"]),
            (masked(good.clone()).compression(compression), ["can't be masked", "compression.up"]),
            (
                masked(good.clone()).scaling(Scaling::Online { kind: ScaleKind::Spread }),
                ["can't be masked", "scaling = online"],
            ),
            (
                masked(good.clone()).importance(ImportanceScope::Shared),
                ["can't be masked", "importance = shared"],
            ),
            (masked(good.clone()).mk(voters), ["can't be masked", "mk"]),
            (method("pof"), ["can't be masked", "pof"]),
            (method("local"), ["can't be masked", "local"]),
        ] {
            let refused = plan(bad).unwrap_err().to_string();
            assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
        }
        for (name, cohort) in [("mk", None), ("linear", None), ("gr", Some(20)), ("tr", Some(20))] {
            let plan = plan(method(name)).unwrap();
            let Privacy::Masked(settings) = &plan.config().privacy else { panic!("it was masked") };
            assert_eq!(settings.cohort, cohort, "{name}");
            let json = serde_json::to_string(plan.config()).unwrap();
            assert_eq!(Plan::new(serde_json::from_str(&json).unwrap()).unwrap(), plan);
            assert!(json.contains(&format!(r#""holders":["{first}","{second}"]"#)), "{json}");
        }
        let plain = plan(PlanConfig::default()).unwrap();
        assert!(plain.mask_rules().is_none() && !plain.is_masked());
        assert!(!serde_json::to_string(plain.config()).unwrap().contains("privacy"));
    }
}
