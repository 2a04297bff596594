//! The upper bounds of histogram buckets that OpenTelemetry's conventions for generative AI give
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/>).

/// Of the durations of operations, in seconds.
pub const SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];

/// Of counts of tokens.
pub const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Of how long models take to begin, in seconds.
pub const FIRST_TOKEN_SECONDS: [f64; 16] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];
