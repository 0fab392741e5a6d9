// The constants of Opus on the wire.

/// The audio clock of everything encoded: RTP units of Opus (RFC 7587, section 4.1), in hertz.
public let audioClockRate = 48_000

/// The longest Opus frame (RFC 6716, section 3.4), in bytes.
public let opusPayloadMax = 1275
