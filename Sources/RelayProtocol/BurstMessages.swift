// The messages about bursts that the relay keeps, and their way to and from protobuf.
import FoundationEssentials
import SwiftProtobuf

extension RelayProtocolLimits {
    /// The most bursts in one `BurstList`.
    public static let keptBurstsMaximum = 64
}

/// Names a request for the list of bursts, or for one: counted up from 1 on each connection.
public struct BurstRequestID: RawRepresentable, Hashable, Comparable, Sendable, CustomStringConvertible {
    /// The number on the wire; 0 is not one.
    public var rawValue: UInt32
    /// The request of that number.
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// The request after this one.
    public var next: Self { Self(rawValue: rawValue &+ 1) }
    /// Whether `lhs` was made before `rhs`.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.rawValue < rhs.rawValue }
    /// The number.
    public var description: String { String(rawValue) }
}

/// A burst that a relay keeps, or that is in progress: its source, and the SFrame key id that its packets name.
public struct BurstName: Hashable, Sendable, CustomStringConvertible {
    /// The talker's source.
    public var ssrc: SSRC
    /// The SFrame key id.
    public var keyID: UInt64

    /// The burst of `ssrc` under `keyID`.
    public init(ssrc: SSRC, keyID: UInt64) {
        self.ssrc = ssrc
        self.keyID = keyID
    }

    /// The epoch of the media key that it is sealed with.
    public var epoch: UInt16 { UInt16(truncatingIfNeeded: keyID >> 48) }

    /// As `init(_:)` reads it: the key id's 16 hexadecimal digits, a hyphen, and the source's 8.
    public var description: String {
        let digits = String(keyID, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits + "-\(ssrc)"
    }

    /// The burst of that description, nil when it is none.
    public init?(_ text: some StringProtocol) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0].utf8.count == 16, parts[1].utf8.count == 8,
            text.utf8.allSatisfy({ $0 != UInt8(ascii: "+") }), let keyID = UInt64(parts[0], radix: 16),
            let ssrc = UInt32(parts[1], radix: 16)
        else { return nil }
        self.init(ssrc: SSRC(rawValue: ssrc), keyID: keyID)
    }
}

/// What a relay keeps of a channel's bursts once they are over, sealed and in memory only.
public struct BurstRetention: Sendable, Hashable {
    /// How many, 0 to `RelayProtocolLimits.keptBurstsMaximum`.
    public let bursts: Int
    /// For how long after its end each.
    public let time: Duration

    /// Nothing is kept.
    public static let off = BurstRetention(bursts: 0, time: .zero)

    /// Keeps `bursts` bursts for `time`; zero of either is `off`.
    public init(bursts: Int, time: Duration) {
        let isOn = bursts > 0 && time > .zero
        self.bursts = isOn ? min(bursts, RelayProtocolLimits.keptBurstsMaximum) : 0
        self.time = isOn ? time : .zero
    }

    /// Whether anything is kept.
    public var isOn: Bool { bursts > 0 }
}

extension BurstRetention {
    init(_ wire: Pttd_Relay_V1_Welcome) throws(RelayMessageError) {
        let limit = RelayProtocolLimits.keptBurstsMaximum
        guard wire.keptBursts <= UInt32(limit) else {
            throw .invalidField("kept_bursts", reason: "is above \(limit)")
        }
        self.init(bursts: Int(wire.keptBursts), time: .milliseconds(wire.keptTimeMs))
    }
}

extension ClientMessage {
    /// Requests a kept burst, or the beginning of one in progress.
    public struct BurstRequest: Sendable, Hashable {
        /// Names the request; greater than every earlier one of the connection.
        public var id: BurstRequestID
        /// The burst.
        public var burst: BurstName
        /// The packets from this sequence number on; nil: from the first that is kept.
        public var first: UInt16?

        /// A request for `burst`.
        public init(id: BurstRequestID, burst: BurstName, first: UInt16? = nil) {
            self.id = id
            self.burst = burst
            self.first = first
        }
    }
}

extension ServerMessage {
    /// The bursts that are kept.
    public struct BurstList: Sendable, Hashable {
        /// The request that is answered.
        public var id: BurstRequestID
        /// The newest first, at most `RelayProtocolLimits.keptBurstsMaximum`.
        public var bursts: [KeptBurst]

        /// An answer; more bursts than the limit are a programming error.
        public init(id: BurstRequestID, bursts: [KeptBurst]) {
            precondition(bursts.count <= RelayProtocolLimits.keptBurstsMaximum)
            self.id = id
            self.bursts = bursts
        }
    }

    /// One burst that is kept.
    public struct KeptBurst: Sendable, Hashable {
        /// How it is asked for.
        public var burst: BurstName
        /// The talker.
        public var talker: MemberID
        /// What the talker was called.
        public var name: DisplayName
        /// How long ago its first packet came; whole milliseconds.
        public var age: Duration
        /// The length of its speech; whole milliseconds.
        public var duration: Duration
        /// How many packets of it are kept.
        public var packets: UInt32
        /// Whether its talker has the floor still.
        public var isGoingOn: Bool

        /// A burst of `talker`.
        public init(
            burst: BurstName, talker: MemberID, name: DisplayName, age: Duration, duration: Duration, packets: UInt32,
            isGoingOn: Bool
        ) {
            self.burst = burst
            self.talker = talker
            self.name = name
            self.age = age
            self.duration = duration
            self.packets = packets
            self.isGoingOn = isGoingOn
        }
    }

    /// The answer to a request that gives nothing.
    public struct BurstRefused: Sendable, Hashable {
        /// The request that is answered.
        public var id: BurstRequestID
        /// Why.
        public var cause: BurstRefusal
        /// For people.
        public var phrase: String
        /// Asking sooner is in vain; zero: not said.
        public var retryAfter: Duration

        /// A refusal for `cause`.
        public init(
            id: BurstRequestID, cause: BurstRefusal, phrase: String = "", retryAfter: Duration = .zero
        ) {
            self.id = id
            self.cause = cause
            self.phrase = phrase
            self.retryAfter = retryAfter
        }
    }
}

/// The number of a request about bursts from the wire.
func burstRequestID(_ value: UInt32) throws(RelayMessageError) -> BurstRequestID {
    try valid(value == 0 ? nil : BurstRequestID(rawValue: value), "request_id", "is 0")
}

extension ClientMessage.BurstRequest {
    init(_ wire: Pttd_Relay_V1_BurstRequest) throws(RelayMessageError) {
        self.init(
            id: try burstRequestID(wire.requestID),
            burst: BurstName(ssrc: SSRC(rawValue: wire.ssrc), keyID: wire.keyID),
            first: wire.hasFirst ? try sequence(wire.first, "first") : nil)
    }

    var wire: Pttd_Relay_V1_BurstRequest {
        var wire = Pttd_Relay_V1_BurstRequest()
        wire.requestID = id.rawValue
        wire.ssrc = burst.ssrc.rawValue
        wire.keyID = burst.keyID
        if let first { wire.first = UInt32(first) }
        return wire
    }
}

extension ServerMessage.BurstList {
    init(_ wire: Pttd_Relay_V1_BurstList) throws(RelayMessageError) {
        let bursts = try entries(
            wire.bursts, atMost: RelayProtocolLimits.keptBurstsMaximum, "bursts", ServerMessage.KeptBurst.init)
        self.init(id: try burstRequestID(wire.requestID), bursts: bursts)
    }

    var wire: Pttd_Relay_V1_BurstList {
        var wire = Pttd_Relay_V1_BurstList()
        wire.requestID = id.rawValue
        wire.bursts = bursts.map(\.wire)
        return wire
    }
}

extension ServerMessage.KeptBurst {
    fileprivate init(_ wire: Pttd_Relay_V1_KeptBurst) throws(RelayMessageError) {
        self.init(
            burst: BurstName(ssrc: SSRC(rawValue: wire.ssrc), keyID: wire.keyID),
            talker: try memberID(wire.memberID), name: try displayName(wire.displayName, "display_name"),
            age: .milliseconds(wire.ageMs), duration: .milliseconds(wire.durationMs), packets: wire.packets,
            isGoingOn: wire.isGoingOn)
    }

    fileprivate var wire: Pttd_Relay_V1_KeptBurst {
        var wire = Pttd_Relay_V1_KeptBurst()
        wire.memberID = Data(talker.bytes)
        wire.displayName = name.text
        wire.ssrc = burst.ssrc.rawValue
        wire.keyID = burst.keyID
        wire.ageMs = age.wireMilliseconds
        wire.durationMs = duration.wireMilliseconds
        wire.packets = packets
        wire.isGoingOn = isGoingOn
        return wire
    }
}
