// With what this end returns to relays, newest first, with a limit on their number, and in one file: tickets, and where they take links
// over TLS.
import Cryptography
import QUIC
import RelayProtocol
import Synchronization

/// The newest resumption state of each relay, and where it takes links over TLS.
///
/// The state belongs to the relay's key, not to its address: it is good at the successor that the relay names, and at another relay of
/// its cluster. What cannot read the ticket makes a full handshake.
///
/// A connection that begins with the state needs one round trip less until it has joined. The place is of use after a start in a network
/// that blocks UDP, if the invitation does not name it. The state contains secrets, as a private key does.
///
/// Shared by all links of a process; may be used from any thread.
public final class ResumptionMemory: Sendable {
    /// Tickets and places that are remembered; beyond, the one that was heard of longest ago is forgotten.
    public static let entriesMaximum = 32
    /// The longest `bytes` that is read: all entries may be of the greatest length.
    public static let byteCountMaximum = 524_288
    /// The longest state that is kept; one with a certificate of an elliptic curve has about 2,000 bytes.
    static let stateByteCountMaximum = 16_000
    private static let magic = Array("pttd resumption 2\n".utf8)
    /// Of files without places.
    private static let formerMagic = Array("pttd resumption 1\n".utf8)

    private struct Entry: Sendable {
        /// 32 bytes that stand for what it is about.
        let name: [UInt8]
        /// Empty: there is none.
        var state: [UInt8] = []
        /// A `WebPlace` as text; empty: it is not known.
        var web: [UInt8] = []
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
        entry(Self.ticketName(relay, identity)).flatMap { ResumptionState(bytes: $0.state) }
    }

    /// Remembers `state`, or with nil forgets what there was.
    func keep(_ state: ResumptionState?, of relay: InvitationLink, for identity: PublicKeyPin) {
        let bytes = state?.bytes ?? []
        change(Self.ticketName(relay, identity)) { $0.state = bytes.count <= Self.stateByteCountMaximum ? bytes : [] }
    }

    /// Where the relay takes links over TLS, as it said last; nil: it is not known.
    func web(of relay: InvitationLink, for identity: PublicKeyPin) -> WebPlace? {
        entry(Self.placeName(relay, identity)).flatMap { WebPlace(String(decoding: $0.web, as: UTF8.self)) }
    }

    /// Remembers where the relay takes links over TLS. One that takes none any more costs an attempt beside that over QUIC.
    func keep(_ web: WebPlace, of relay: InvitationLink, for identity: PublicKeyPin) {
        guard self.web(of: relay, for: identity) != web else { return }
        change(Self.placeName(relay, identity)) { $0.web = Array(web.text.utf8) }
    }

    private func entry(_ name: [UInt8]) -> Entry? { entries.withLock { $0.first { $0.name == name } } }

    private func change(_ name: [UInt8], _ body: (inout Entry) -> Void) {
        entries.withLock { entries in
            let place = entries.firstIndex { $0.name == name }
            var entry = place.map { entries.remove(at: $0) } ?? Entry(name: name)
            body(&entry)
            if !entry.state.isEmpty || !entry.web.isEmpty { entries.insert(entry, at: 0) }
            if entries.count > Self.entriesMaximum { entries.removeLast(entries.count - Self.entriesMaximum) }
            save(Self.write(entries))
        }
    }

    /// Of one end's tickets of all relays with one key.
    private static func ticketName(_ relay: InvitationLink, _ identity: PublicKeyPin) -> [UInt8] {
        sha256(identity.bytes + relay.pin.bytes)
    }

    /// Of one relay, as one end knows it.
    private static func placeName(_ relay: InvitationLink, _ identity: PublicKeyPin) -> [UInt8] {
        sha256(identity.bytes + relay.pin.bytes + Array("\(relay.host) \(relay.port)".utf8))
    }

    // MARK: In one piece

    /// Magic; for each: name (32 bytes), state, place. Each of the last two is preceded by its length (4 bytes, most significant first).
    private static func write(_ entries: [Entry]) -> [UInt8] {
        var bytes = magic
        for entry in entries {
            bytes += entry.name
            for part in [entry.state, entry.web] {
                let length = UInt32(clamping: part.count)
                bytes += [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: length >> $0) } + part
            }
        }
        return bytes
    }

    private static func read(_ bytes: [UInt8]) -> [Entry]? {
        let hasPlaces = bytes.starts(with: magic)
        guard bytes.count <= byteCountMaximum, hasPlaces || bytes.starts(with: formerMagic) else { return nil }
        var rest = bytes.dropFirst(magic.count)
        var entries: [Entry] = []
        while !rest.isEmpty {
            guard rest.count >= 32, entries.count < entriesMaximum else { return nil }
            var entry = Entry(name: Array(rest.prefix(32)))
            rest = rest.dropFirst(32)
            guard let state = part(&rest, maximum: stateByteCountMaximum) else { return nil }
            // It has a checksum of its own.
            guard state.isEmpty ? hasPlaces : ResumptionState(bytes: state) != nil else { return nil }
            entry.state = state
            if hasPlaces {
                guard let web = part(&rest, maximum: WebPlace.byteCountMaximum) else { return nil }
                guard web.isEmpty || WebPlace(String(decoding: web, as: UTF8.self)) != nil else { return nil }
                entry.web = web
            }
            entries.append(entry)
        }
        return entries
    }

    /// Takes a length and as many bytes from the front.
    private static func part(_ rest: inout ArraySlice<UInt8>, maximum: Int) -> [UInt8]? {
        guard rest.count >= 4 else { return nil }
        let length = rest.prefix(4).reduce(0) { $0 << 8 | Int($1) }
        rest = rest.dropFirst(4)
        guard length <= maximum, rest.count >= length else { return nil }
        defer { rest = rest.dropFirst(length) }
        return Array(rest.prefix(length))
    }
}

/// A relay may send tickets and tokens with every packet; each change is a file written. So the newest is kept a moment after it
/// came, and only a few times a connection: an honest relay gives one ticket and one token, right after the handshake.
struct ResumptionPacer {
    /// So long after something came it is kept.
    static let pause: Duration = .seconds(1)
    /// How often on one connection.
    static let savesMaximum = 4

    private var unsaved: ResumptionState?
    private var saves = 0

    /// Something came. Returns whether `take` is to be called after `pause`.
    mutating func came(_ state: ResumptionState) -> Bool {
        guard saves < Self.savesMaximum else { return false }
        defer { unsaved = state }
        return unsaved == nil
    }

    /// What is to be kept now; nil: it is known already.
    mutating func take() -> ResumptionState? {
        guard let state = unsaved else { return nil }
        unsaved = nil
        saves += 1
        return state
    }
}
