//! How long frames and payloads are.

use crate::column::Column;
use crate::flow::Flow;
use crate::schema::columns::{columns, cross};

pub(super) const COLUMNS: &[Column<Flow>] = columns![
    cross!(
        |flow| [
            ("", "both directions", flow.wire()),
            ("fwd_", "forward", flow.forward.wire),
            ("bwd_", "backward", flow.backward.wire),
        ],
        |lengths| [
            ("frame_min", Bytes, "Least of the frame lengths, " _ "; null without packets.", U64(lengths.min())),
            ("frame_max", Bytes, "Greatest of the frame lengths, " _ "; null without packets.", U64(lengths.max())),
            ("frame_mean", Bytes, "Mean of the frame lengths, " _ "; null without packets.", F64(lengths.mean())),
            ("frame_std", Bytes, "Sample standard deviation of the frame lengths, " _ "; null below two packets.", F64(lengths.std())),
        ]
    ),
    cross!(
        |flow| [
            ("", "both directions", flow.payload()),
            ("fwd_", "forward", flow.forward.payload),
            ("bwd_", "backward", flow.backward.payload),
        ],
        |lengths| [
            ("payload_min", Bytes, "Least of the payload lengths, empty ones included, " _ "; null without packets.", U64(lengths.min())),
            ("payload_max", Bytes, "Greatest of the payload lengths, empty ones included, " _ "; null without packets.", U64(lengths.max())),
            ("payload_mean", Bytes, "Mean of the payload lengths, empty ones included, " _ "; null without packets.", F64(lengths.mean())),
            ("payload_std", Bytes, "Sample standard deviation of the payload lengths, empty ones included, " _ "; null below two packets.", F64(lengths.std())),
        ]
    ),
];
