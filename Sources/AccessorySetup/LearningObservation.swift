// What is seen of a button that is being learned.
import Accessories
import BlueZ
import MonotonicTime

/// Where something was seen.
enum LearningSource: Hashable, Sendable {
    /// A characteristic that notifies.
    case characteristic(service: BluetoothUUID, BluetoothUUID)
    /// A stream of the device.
    case stream(StreamKind)
    /// An input device.
    case keys(LocalDeviceID)
    /// A serial port.
    case serial(LocalDeviceID)

    /// Whether its bytes have no borders.
    var isStream: Bool {
        switch self {
        case .stream, .serial: true
        case .characteristic, .keys: false
        }
    }

    /// Of two that tell the same, the one with the smaller number is taken: the maker's own before those that many devices share.
    var rank: Int {
        switch self {
        case .characteristic(_, let uuid): uuid.isAssigned ? 1 : 0
        case .stream: 2
        case .keys: 3
        case .serial: 4
        }
    }
}

/// Something that was seen.
struct LearningObservation: Equatable, Sendable {
    enum Content: Hashable, Sendable {
        case bytes([UInt8])
        case key(code: UInt16, isDown: Bool)
    }

    var source: LearningSource
    var content: Content
    var time: Instant

    var bytes: [UInt8]? { if case .bytes(let bytes) = content { bytes } else { nil } }

    /// How many short messages take as long to read.
    var shortMessages: Int { 1 + (bytes?.count ?? 0) / 32 }
}

/// What was seen between asking to press and the end of what came after asking to let go.
struct LearningRound: Equatable, Sendable {
    /// When the person was asked to press.
    var pressAsked: Instant
    /// When the person was asked to let go.
    var releaseAsked: Instant
    var observations: [LearningObservation]

    /// What one source told.
    func only(_ source: LearningSource) -> LearningRound {
        var result = self
        result.observations.removeAll { $0.source != source }
        return result
    }

    func pressed(_ source: LearningSource) -> [LearningObservation] {
        observations.filter { $0.source == source && $0.time < releaseAsked }
    }

    func released(_ source: LearningSource) -> [LearningObservation] {
        observations.filter { $0.source == source && $0.time >= releaseAsked }
    }
}

/// A rule that explains a button.
struct LearnedRule: Equatable, Sendable {
    var source: LearningSource
    var rule: DecodeRule
    /// No release was seen, or only at once after the press.
    var isToggleOnly: Bool
    /// Its contact bounces.
    var bounces: Bool
    /// Whether it tells again and again that it is held; nil: not known.
    var repeats: Bool?
}

extension BluetoothUUID {
    /// Whether it is on the Bluetooth base UUID: one that the SIG gives out, or that many makers use without asking.
    var isAssigned: Bool { rawValue.hasSuffix("-0000-1000-8000-00805f9b34fb") }
}
