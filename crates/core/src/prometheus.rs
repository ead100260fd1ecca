//! The signals in the text format of Prometheus, which readers of `OpenMetrics` take too.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::fmt::{Display, Write};

use crate::signals::{CancelLatency, ToolSignals};
use crate::{Cause, Connection, Time};

impl Connection {
    /// The counters and signals as a page for Prometheus to scrape.
    pub fn prometheus(&self, now: Time) -> String {
        let (stats, tools) = (self.stats(), self.signals(now).tools);
        let mut page = Page(String::new());
        page.each(&tools, "requests_total", "counter", "Requests of the peer.", |tool| {
            tool.requests
        });
        page.each(&tools, "in_flight", "gauge", "Requests in the table.", |tool| tool.in_flight);
        page.head("cancelled_total", "counter", "Cancelled requests, by cause.");
        for tool in &tools {
            for (cause, count) in Cause::ALL.into_iter().zip(tool.cancelled) {
                page.line(
                    "cancelled_total",
                    &[&labels(tool), &label("cause", cause.as_str())],
                    count,
                );
            }
        }
        page.head("cancels_total", "counter", "Cancels that the peer sent, by what they hit.");
        for (hit, count) in stats.cancels_by_hit() {
            page.line("cancels_total", &[&label("hit", hit)], count);
        }
        page.latencies(&tools);
        let help = "Cancelled requests that run on now.";
        page.each(&tools, "orphans", "gauge", help, |tool| tool.orphans);
        let help = "Cancelled requests that ended as orphans.";
        page.each(&tools, "orphaned_total", "counter", help, |tool| tool.orphaned);
        let help = "Answers of cancelled requests that were dropped.";
        page.each(&tools, "dropped_answers_total", "counter", help, |tool| tool.dropped_answers);
        let help = "Requests cancelled after they had committed an effect.";
        let count = |tool: &ToolSignals| tool.abandoned_with_effects;
        page.each(&tools, "abandoned_with_effects_total", "counter", help, count);
        page.0
    }
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ =
            writeln!(self.0, "# HELP countermand_{name} {help}\n# TYPE countermand_{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[&str], value: impl Display) {
        let _ = writeln!(self.0, "countermand_{name}{{{}}} {value}", labels.join(","));
    }

    fn each<N: Display>(
        &mut self,
        tools: &[ToolSignals],
        name: &str,
        kind: &str,
        help: &str,
        value: impl Fn(&ToolSignals) -> N,
    ) {
        self.head(name, kind, help);
        for tool in tools {
            self.line(name, &[&labels(tool)], value(tool));
        }
    }

    fn latencies(&mut self, tools: &[ToolSignals]) {
        let name = "cancel_latency_seconds";
        self.head(name, "histogram", "From the cancel's being read to the handler's exit.");
        for tool in tools.iter().filter(|tool| tool.latency.count > 0) {
            let (latency, labels) = (&tool.latency, labels(tool));
            let bucket = format!("{name}_bucket");
            for (bound, count) in CancelLatency::BUCKETS.into_iter().zip(latency.buckets) {
                let le = label("le", &bound.as_secs_f64().to_string());
                self.line(&bucket, &[&labels, &le], count);
            }
            self.line(&bucket, &[&labels, &label("le", "+Inf")], latency.count);
            self.line(&format!("{name}_sum"), &[&labels], latency.total.as_secs_f64());
            self.line(&format!("{name}_count"), &[&labels], latency.count);
        }
    }
}

fn labels(tool: &ToolSignals) -> String {
    let method = label("method", &tool.method);
    match &tool.tool {
        Some(name) => [method, label("tool", name)].join(","),
        None => method,
    }
}

/// A peer chooses some of the values: what would end one is escaped.
fn label(name: &str, value: &str) -> String {
    let escaped = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    format!("{name}=\"{escaped}\"")
}
