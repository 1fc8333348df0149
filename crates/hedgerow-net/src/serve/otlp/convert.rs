//! A page of OpenMetrics text as a message of OTLP in JSON. So each metric is described once.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

/// Counts and sums are since this process began.
const CUMULATIVE: u8 = 2;

/// The metrics of a page as an `ExportMetricsServiceRequest`. `resource` are attributes of the
/// process, `span` is when it began and the present time.
pub(super) fn message(
    page: &str,
    resource: &[(String, String)],
    (began, now): (SystemTime, SystemTime),
) -> Value {
    let times = [nanoseconds(began), nanoseconds(now)];
    let metrics: Vec<Value> = families(page).iter().map(|family| family.metric(&times)).collect();
    let attributes = resource.iter().map(|(key, value)| attribute(key, value));
    json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes.collect::<Vec<_>>() },
        "scopeMetrics": [{
            "scope": { "name": "hedgerow", "version": env!("CARGO_PKG_VERSION") },
            "metrics": metrics,
        }],
    }] })
}

/// 64-bit integers are texts in OTLP's JSON.
fn nanoseconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos()).to_string()
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

#[derive(Debug, Default)]
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
    help: &'a str,
    unit: &'a str,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Sample {
    /// What follows the name of the family: `_total`, `_bucket`, ...
    suffix: String,
    labels: Vec<(String, String)>,
    value: f64,
}

fn families(page: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in page.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(key), Some(name)) = (words.next(), words.next()) else { continue };
            let text = words.next().unwrap_or_default();
            if families.last().is_none_or(|family| family.name != name) {
                families.push(Family { name, ..Family::default() });
            }
            let Some(family) = families.last_mut() else { continue };
            match key {
                "TYPE" => family.kind = text,
                "HELP" => family.help = text.trim_end_matches('.'),
                "UNIT" => family.unit = text,
                _ => {}
            }
        } else if let Some(family) = families.last_mut()
            && let Some(sample) = line.strip_prefix(family.name).and_then(sample)
        {
            family.samples.push(sample);
        }
    }
    families
}

/// `_total{kind="a"} 7`, without the name of the family.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (suffix, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while let Some((name, after)) = rest.split_once("=\"") {
            let (value, left) = quoted(after)?;
            labels.push((name.trim_start_matches(',').to_owned(), value));
            rest = left;
            if rest.starts_with('}') {
                break;
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.trim().parse().ok()?;
    Some(Sample { suffix: suffix.to_owned(), labels, value })
}

/// The text up to the closing quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, letter) in text.char_indices() {
        match (is_escaped, letter) {
            (true, 'n') => value.push('\n'),
            (true, letter) => value.push(letter),
            (false, '"') => return Some((value, &text[at + 1..])),
            (false, '\\') => {}
            (false, letter) => value.push(letter),
        }
        is_escaped = !is_escaped && letter == '\\';
    }
    None
}

impl Family<'_> {
    fn metric(&self, [began, now]: &[String; 2]) -> Value {
        let mut metric = Map::new();
        metric.insert("name".into(), self.name.into());
        metric.insert("description".into(), self.help.into());
        // The standard's word for it.
        let unit = if self.unit == "seconds" { "s" } else { self.unit };
        metric.insert("unit".into(), unit.into());
        let point = |sample: &Sample, start: Option<&String>| {
            let mut point = json!({
                "attributes": attributes(&sample.labels),
                "timeUnixNano": now,
                "asDouble": sample.value,
            });
            if let Some(start) = start {
                point["startTimeUnixNano"] = start.clone().into();
            }
            point
        };
        let points = |start: Option<&String>| -> Vec<Value> {
            self.samples.iter().map(|sample| point(sample, start)).collect()
        };
        let (kind, data) = match self.kind {
            "counter" => (
                "sum",
                json!({
                    "aggregationTemporality": CUMULATIVE,
                    "isMonotonic": true,
                    "dataPoints": points(Some(began)),
                }),
            ),
            "histogram" => (
                "histogram",
                json!({
                    "aggregationTemporality": CUMULATIVE,
                    "dataPoints": [self.histogram(began, now)],
                }),
            ),
            _ => ("gauge", json!({ "dataPoints": points(None) })),
        };
        metric.insert(kind.into(), data);
        Value::Object(metric)
    }

    /// Buckets count what is below their bound there, and what is between two bounds here.
    fn histogram(&self, began: &str, now: &str) -> Value {
        let of = |suffix: &str| {
            let found = self.samples.iter().find(|sample| sample.suffix == suffix);
            found.map_or(0.0, |sample| sample.value)
        };
        let (mut bounds, mut counts, mut before) = (Vec::new(), Vec::new(), 0.0);
        for bucket in self.samples.iter().filter(|sample| sample.suffix == "_bucket") {
            let bound = bucket.labels.iter().find(|(name, _)| name == "le");
            let bound = bound.and_then(|(_, bound)| bound.parse::<f64>().ok());
            bounds.extend(bound.filter(|bound| bound.is_finite()));
            counts.push(((bucket.value - before) as u64).to_string());
            before = bucket.value;
        }
        json!({
            "attributes": [],
            "startTimeUnixNano": began,
            "timeUnixNano": now,
            "count": (of("_count") as u64).to_string(),
            "sum": of("_sum"),
            "bucketCounts": counts,
            "explicitBounds": bounds,
        })
    }
}

fn attributes(labels: &[(String, String)]) -> Vec<Value> {
    labels.iter().map(|(key, value)| attribute(key, value)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PAGE: &str = r#"# HELP hedgerow_build_info Always 1.
# TYPE hedgerow_build_info gauge
hedgerow_build_info{version="0.2",method="a \"b\", \\ c\nd"} 1
# HELP hedgerow_rounds Rounds closed by this process.
# TYPE hedgerow_rounds counter
hedgerow_rounds_total 7
# HELP hedgerow_uploads Uploads, by outcome.
# TYPE hedgerow_uploads counter
hedgerow_uploads_total{outcome="taken"} 12
hedgerow_uploads_total{outcome="late"} 0
# HELP hedgerow_round_seconds How long rounds were open.
# TYPE hedgerow_round_seconds histogram
# UNIT hedgerow_round_seconds seconds
hedgerow_round_seconds_sum 2.5
hedgerow_round_seconds_count 5
hedgerow_round_seconds_bucket{le="0.1"} 1
hedgerow_round_seconds_bucket{le="1.0"} 4
hedgerow_round_seconds_bucket{le="+Inf"} 5
# EOF
"#;

    #[test]
    fn a_page_becomes_gauges_sums_and_histograms() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let resource = [("service.name".to_owned(), "hedgerow".to_owned())];
        let message = message(PAGE, &resource, (at(1), at(3)));
        let whole = &message["resourceMetrics"][0];
        assert_eq!(whole["resource"]["attributes"][0]["value"]["stringValue"], "hedgerow");
        let metrics = whole["scopeMetrics"][0]["metrics"].as_array().unwrap();
        let find = |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap();
        let build = &find("hedgerow_build_info")["gauge"]["dataPoints"][0];
        assert_eq!(build["asDouble"], 1.0);
        assert_eq!(build["attributes"][1]["value"]["stringValue"], "a \"b\", \\ c\nd");
        let rounds = find("hedgerow_rounds");
        assert_eq!(rounds["description"], "Rounds closed by this process");
        let sum = &rounds["sum"];
        assert_eq!(
            (&sum["isMonotonic"], &sum["aggregationTemporality"]),
            (&json!(true), &json!(2))
        );
        let point = &sum["dataPoints"][0];
        assert_eq!(
            (&point["asDouble"], &point["timeUnixNano"]),
            (&json!(7.0), &json!("3000000000"))
        );
        assert_eq!(point["startTimeUnixNano"], "1000000000");
        let uploads = find("hedgerow_uploads")["sum"]["dataPoints"].as_array().unwrap();
        assert_eq!(uploads.len(), 2);
        assert_eq!(uploads[1]["attributes"], json!([attribute("outcome", "late")]));
        let seconds = find("hedgerow_round_seconds");
        assert_eq!(seconds["unit"], "s");
        let point = &seconds["histogram"]["dataPoints"][0];
        assert_eq!(point["bucketCounts"], json!(["1", "3", "1"]));
        assert_eq!(point["explicitBounds"], json!([0.1, 1.0]));
        assert_eq!((&point["count"], &point["sum"]), (&json!("5"), &json!(2.5)));
        assert_eq!(metrics.len(), 4);
    }
}
