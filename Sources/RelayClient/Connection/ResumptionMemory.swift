// The tickets with which this end returns to relays, newest first, with a limit on their number, and in one file.
import Cryptography
import QUIC
import RelayProtocol
import Synchronization

/// The newest resumption state of each relay. A connection that begins with it needs one round trip less until it has
/// joined. It contains secrets, as a private key does.
///
/// Shared by all links of a process; may be used from any thread.
public final class ResumptionMemory: Sendable {
    /// Relays that are remembered; beyond, the one that was heard of longest ago is forgotten.
    public static let relaysMaximum = 16
    /// The longest `bytes` that is read.
    public static let byteCountMaximum = 262_144
    /// The longest state that is kept; one with a certificate of an elliptic curve has about 2,000 bytes.
    static let stateByteCountMaximum = 16_000
    private static let magic = Array("pttd resumption 1\n".utf8)

    private struct Entry: Sendable {
        let relay: [UInt8]
        let state: [UInt8]
    }

    private let entries: Mutex<[Entry]>
    private let save: @Sendable ([UInt8]) -> Void

    /// What was remembered earlier, and where it is kept.
    ///
    /// - Parameters:
    ///   - bytes: What `save` was given earlier. What is damaged of it is left out; see `isIntact`.
    ///   - save: Called after each change with all of it, on the thread of the change and in the order of changes; it must not come
    ///     back here.
    public init(restoring bytes: [UInt8] = [], save: @escaping @Sendable ([UInt8]) -> Void = { _ in }) {
        entries = Mutex(Self.read(bytes) ?? [])
        self.save = save
    }

    /// Whether `bytes` is what `save` was given.
    public static func isIntact(_ bytes: [UInt8]) -> Bool { bytes.isEmpty || read(bytes) != nil }

    /// What to return with; the ticket is this end's `identity`'s, so it is not used by another one.
    func state(of relay: InvitationLink, for identity: PublicKeyPin) -> ResumptionState? {
        let name = Self.name(relay, identity)
        return entries.withLock { entries in
            entries.first { $0.relay == name }.flatMap { ResumptionState(bytes: $0.state) }
        }
    }

    /// Remembers `state`, or with nil forgets what there was.
    func keep(_ state: ResumptionState?, of relay: InvitationLink, for identity: PublicKeyPin) {
        let name = Self.name(relay, identity)
        entries.withLock { entries in
            entries.removeAll { $0.relay == name }
            if let state, state.bytes.count <= Self.stateByteCountMaximum {
                entries.insert(Entry(relay: name, state: state.bytes), at: 0)
            }
            if entries.count > Self.relaysMaximum { entries.removeLast(entries.count - Self.relaysMaximum) }
            save(Self.write(entries))
        }
    }

    /// 32 bytes that stand for one end's tickets at one relay.
    private static func name(_ relay: InvitationLink, _ identity: PublicKeyPin) -> [UInt8] {
        sha256(identity.bytes + relay.pin.bytes + Array("\(relay.host) \(relay.port)".utf8))
    }

    // MARK: In one piece

    /// Magic; for each: name (32 bytes), length (4 bytes, most significant first), state.
    private static func write(_ entries: [Entry]) -> [UInt8] {
        var bytes = magic
        for entry in entries {
            let length = UInt32(clamping: entry.state.count)
            bytes += entry.relay + [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: length >> $0) } + entry.state
        }
        return bytes
    }

    private static func read(_ bytes: [UInt8]) -> [Entry]? {
        guard bytes.count <= byteCountMaximum, bytes.starts(with: magic) else { return nil }
        var rest = bytes.dropFirst(magic.count)
        var entries: [Entry] = []
        while !rest.isEmpty {
            guard rest.count >= 36, entries.count < relaysMaximum else { return nil }
            let name = Array(rest.prefix(32))
            let length = rest.dropFirst(32).prefix(4).reduce(0) { $0 << 8 | Int($1) }
            rest = rest.dropFirst(36)
            guard length <= stateByteCountMaximum, rest.count >= length else { return nil }
            let state = Array(rest.prefix(length))
            // It has a checksum of its own.
            guard ResumptionState(bytes: state) != nil else { return nil }
            entries.append(Entry(relay: name, state: state))
            rest = rest.dropFirst(length)
        }
        return entries
    }
}
