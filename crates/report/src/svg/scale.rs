//! From values to places on an axis, and which ticks to draw there.

use units::format::digits;

use super::{Anchor, Figure, Stroke};

/// Values that span more than this are shown on a logarithmic axis.
const LOG_FROM: f64 = 12.0;

/// Room for a label.
const LABEL_WIDTH: f64 = 38.0;
const LABEL_HEIGHT: f64 = 14.0;

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    pub(super) log: bool,
}

impl Scale {
    /// An axis over all values: logarithmic where they span a lot, from 0 where 0 is near enough not
    /// to hide the differences.
    pub(super) fn fit(values: &[f64], from: f64, to: f64) -> Self {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if low > 0.0 && high / low > LOG_FROM {
            return Self::log(low, high, from, to);
        }
        let spread = (high - low).max(high.abs() * 0.02).max(1e-9);
        let low = if low >= 0.0 && low < 2.0 * spread {
            0.0
        } else {
            low - 0.1 * spread
        };
        Self {
            low,
            high: high + 0.06 * spread,
            from,
            to,
            log: false,
        }
    }

    /// From 0 to `high`.
    pub(super) fn from_zero(high: f64, from: f64, to: f64) -> Self {
        Self {
            low: 0.0,
            high: high.max(1e-9),
            from,
            to,
            log: false,
        }
    }

    pub(super) fn log(low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = low.max(1e-9);
        Self {
            low: low / 1.15,
            high: high.max(low) * 1.15,
            from,
            to,
            log: true,
        }
    }

    /// The place of a value, kept on the axis.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.log {
            self.log_ticks()
        } else {
            self.linear_ticks()
        }
    }

    /// Ticks with their labels, without those that would overlap on an axis with `room` units for a label.
    fn labels(&self, room: f64) -> Vec<(f64, String)> {
        let mut labels: Vec<(f64, String)> = Vec::new();
        for tick in self.ticks() {
            let far = |(last, _): &(f64, String)| (self.at(tick) - self.at(*last)).abs() >= room;
            if labels.last().is_none_or(far) {
                labels.push((tick, self.label(tick)));
            }
        }
        labels
    }

    /// With as many decimals as tell one linear tick from the next.
    fn label(&self, tick: f64) -> String {
        if self.log {
            return tick_text(tick);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small number that is not negative"
        )]
        let places = (-self.step().log10().floor()).clamp(0.0, 12.0) as usize;
        // No tick is written -0.
        format!("{:.places$}", tick + 0.0)
    }

    /// Between linear ticks: 1, 2 or 5 times a power of ten.
    fn step(&self) -> f64 {
        let rough = (self.high - self.low) / 5.0;
        let decade = 10f64.powf(rough.log10().floor());
        [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|nice| nice * decade)
            .find(|step| *step >= rough)
            .unwrap_or(rough)
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let step = self.step();
        let mut tick = (self.low / step).ceil() * step;
        let mut ticks = Vec::new();
        while tick <= self.high && ticks.len() < 20 {
            // Steps of 0.1 add up to 0.30000000000000004.
            ticks.push((tick / step).round() * step);
            tick += step;
        }
        ticks
    }

    fn log_ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let nice: &[f64] = if decades < 2.5 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let mut decade = 10f64.powf(self.low.log10().floor());
        let mut ticks = Vec::new();
        while decade <= self.high {
            ticks.extend(nice.iter().map(|nice| nice * decade));
            decade *= 10.0;
        }
        ticks.retain(|tick| *tick >= self.low && *tick <= self.high);
        ticks
    }

    /// Grid, ticks and caption of a horizontal axis under a plot from `top` to `bottom`.
    pub(super) fn draw_below(&self, figure: &mut Figure, top: f64, bottom: f64, caption: &str) {
        figure.open("soft");
        for (tick, label) in self.labels(LABEL_WIDTH) {
            let x = self.at(tick);
            figure.line((x, top), (x, bottom), FAINT);
            figure.text((x, bottom + 16.0), Anchor::Middle, &label);
        }
        figure.line((self.from, bottom), (self.to, bottom), Stroke::new(1.0));
        let kind = if self.log { ", log scale" } else { "" };
        let middle = f64::midpoint(self.from, self.to);
        figure.text(
            (middle, bottom + 34.0),
            Anchor::Middle,
            &format!("{caption}{kind}"),
        );
        figure.close();
    }

    /// Grid and ticks of a vertical axis left of a plot from `left` to `right`.
    pub(super) fn draw_left(&self, figure: &mut Figure, left: f64, right: f64, caption: &str) {
        figure.open("soft");
        for (tick, label) in self.labels(LABEL_HEIGHT) {
            let y = self.at(tick);
            figure.line((left, y), (right, y), FAINT);
            figure.text((left - 6.0, y + 4.5), Anchor::End, &label);
        }
        let kind = if self.log { ", log scale" } else { "" };
        let top = self.from.min(self.to);
        figure.text(
            (8.0, top - 10.0),
            Anchor::Start,
            &format!("{caption}{kind}"),
        );
        figure.close();
    }
}

/// Grid lines are there for those who look for them.
pub(super) const FAINT: Stroke = Stroke::new(1.0).opacity(0.22);

/// Ticks are round numbers, and read as such: 0.5, 20, 1000.
fn tick_text(tick: f64) -> String {
    let text = digits(tick);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of drawn things")]
pub(crate) fn float(value: usize) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_start_at_zero_when_it_is_near() {
        let scale = Scale::fit(&[3.0, 9.0], 0.0, 100.0);
        assert_eq!(scale.at(0.0), 0.0);
        assert_eq!(scale.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert!(Scale::fit(&[100.0, 101.0], 0.0, 100.0).low > 90.0);
    }

    #[test]
    fn labels_differ() {
        let labels = |low, high| {
            let labels = Scale::fit(&[low, high], 0.0, 600.0).labels(38.0);
            labels
                .into_iter()
                .map(|(_, label)| label)
                .collect::<Vec<_>>()
        };
        for (low, high) in [
            (21.2, 21.25),
            (0.0, 0.003),
            (1000.0, 1004.0),
            (-3.0, 2.0),
            (5.0, 5.0),
        ] {
            let mut labels = labels(low, high);
            assert!(labels.len() >= 2, "{labels:?}");
            labels.dedup();
            assert_eq!(
                labels.len(),
                Scale::fit(&[low, high], 0.0, 600.0).ticks().len()
            );
        }
        let crowded = Scale::fit(&[1.0, 300.0], 0.0, 100.0).labels(38.0);
        assert!(crowded.len() <= 3, "{crowded:?}");
    }

    #[test]
    fn wide_spans_are_logarithmic() {
        let scale = Scale::fit(&[1.0, 100.0], 0.0, 100.0);
        assert!(scale.log);
        assert_eq!(scale.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!((scale.at(10.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn equal_values_still_have_an_axis() {
        let scale = Scale::fit(&[0.0, 0.0], 0.0, 100.0);
        assert!(scale.at(0.0).is_finite() && scale.ticks().len() > 1);
        let scale = Scale::fit(&[7.0], 0.0, 100.0);
        assert!(scale.at(7.0) > 0.0 && scale.at(7.0) < 100.0);
    }
}
