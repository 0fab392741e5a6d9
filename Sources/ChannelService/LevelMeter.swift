// How loud own speech is, for display. Pure.

import Audio
import Vocabulary

/// The level of what is sent, ten times a second: the loudest frame of each tenth.
struct LevelMeter {
    /// Samples between two levels, at 48 kHz: 100 ms.
    static let interval = audioClockRate / 10

    private var loudest = OutgoingFrame.levelMin
    private var samples = 0

    /// Adds a frame; returns the level of the tenth that it completes, in dBFS.
    mutating func add(_ frame: OutgoingFrame) -> Float? {
        loudest = max(loudest, frame.level)
        samples += Int(frame.samples)
        guard samples >= Self.interval else { return nil }
        defer {
            loudest = OutgoingFrame.levelMin
            samples = 0
        }
        return loudest
    }
}
