// The connections that a channel's media go to and come from outside QUIC, each with its own trailers.
import Cryptography
import QUIC
import RelayProtocol
import Synchronization

/// Where a shard sends a connection's media: its path, and the key of its trailers.
///
/// The connection itself may be another thread's. Lives from the connection's announcement until its end.
final class MediaOutlet {
    let id: ConnectionID
    fileprivate(set) var path: FanOutPath
    /// What makes its trailers, as it was when it last began or ceased to listen: in between its group's counts on.
    fileprivate var sealer: TrailerSealer?
    fileprivate var isListening: Bool { group != nil }
    fileprivate weak var group: ListenerGroup?
    /// What the connection sends outside QUIC; nil: it is no member.
    var inlet: MediaInlet?

    init(_ id: ConnectionID, at path: FanOutPath) {
        self.id = id
        self.path = path
    }

    /// Makes the trailers' key ready for at most `maximum` packets, once: its counter must never start again. False when that fails.
    func makeSealer(_ key: TrailerKey, maximum: UInt64) -> Bool {
        if sealer == nil, !isListening { sealer = try? TrailerSealer(key: key, maximum: maximum) }
        return sealer != nil || isListening
    }
}

extension MediaOutlet {
    /// Whether it does not listen, and can be sent nothing more: its group knows of those that listen.
    var isExhausted: Bool { !isListening && sealer?.isExhausted == true }

    /// Writes the trailer of a packet to this connection alone; false: it can be sent nothing more.
    func seal(_ datagram: UnsafeMutableRawBufferPointer) -> Bool {
        if let group { return group.seal(datagram, for: id) }
        return (try? sealer?.seal(datagram)) != nil
    }
}

/// The listeners of one channel, laid out for the fan-out, so that a packet needs no iteration over connections.
final class ListenerGroup {
    /// Their paths.
    let recipients: FanOutGroup
    private var outlets: [MediaOutlet] = []
    private let sealers: Sealers
    private var numbers: [ConnectionID: Int] = [:]
    private var areNumbered = true

    init() {
        let sealers = Sealers()
        self.sealers = sealers
        // A trailer that cannot be made stays as it is; the listener drops the packet by its MAC.
        recipients = FanOutGroup(trailerLength: MediaTrailer.byteCount) { _ = sealers.seal($1, for: $0) }
    }

    /// Takes `outlet` in, whose sealer has been made.
    func insert(_ outlet: MediaOutlet) {
        guard !outlet.isListening, let sealer = outlet.sealer else { return }
        outlet.group = self
        outlet.sealer = nil
        outlets.append(outlet)
        sealers.append(sealer)
        recipients.append(outlet.path)
        areNumbered = false
    }

    func remove(_ id: ConnectionID) {
        guard let place = outlets.firstIndex(where: { $0.id == id }) else { return }
        let outlet = outlets.remove(at: place)
        outlet.sealer = sealers.remove(at: place)
        outlet.group = nil
        recipients.remove(at: place)
        areNumbered = false
    }

    /// The media of an outlet go to another path, whether it listens now or not.
    func move(_ outlet: MediaOutlet, to path: FanOutPath) {
        outlet.path = path
        guard outlet.isListening, let place = outlets.firstIndex(where: { $0 === outlet }) else { return }
        recipients.replace(at: place, by: path)
    }

    /// The number of `id`, if it is one of the listeners.
    func number(of id: ConnectionID) -> Int? {
        if !areNumbered {
            areNumbered = true
            numbers = [:]
            for (number, outlet) in outlets.enumerated() { numbers[outlet.id] = number }
        }
        return numbers[id]
    }

    /// Writes the trailer of a packet to one of the listeners; false: none can be written.
    fileprivate func seal(_ datagram: UnsafeMutableRawBufferPointer, for id: ConnectionID) -> Bool {
        number(of: id).map { sealers.seal(datagram, for: $0) } ?? false
    }

    /// Takes out those who can be sent nothing more on their connections.
    func removeExhausted() -> [ConnectionID] {
        let exhausted = sealers.takeExhausted().map { outlets[$0].id }
        for id in exhausted { remove(id) }
        return exhausted
    }
}

/// The sealers of the listeners' trailers, in their order, side by side in memory.
///
/// One thread uses it, except that several threads may call `seal` at once for different listeners while nothing else
/// is called.
private final class Sealers: @unchecked Sendable {
    private let hasExhausted = Atomic<Bool>(false)
    private var all = UnsafeMutableBufferPointer<TrailerSealer>.allocate(capacity: 0)
    private var count = 0
    /// Those whose last counter has been used.
    private let exhausted = Mutex<[Int]>([])

    deinit {
        all.baseAddress?.deinitialize(count: count)
        all.deallocate()
    }

    func append(_ sealer: TrailerSealer) {
        if count == all.count {
            let larger = UnsafeMutableBufferPointer<TrailerSealer>.allocate(capacity: max(8, count * 2))
            _ = larger.moveInitialize(fromContentsOf: all.extracting(..<count))
            all.deallocate()
            all = larger
        }
        all.initializeElement(at: count, to: sealer)
        count += 1
    }

    func remove(at place: Int) -> TrailerSealer {
        let sealer = all.moveElement(from: place)
        _ = all.extracting(place..<count - 1).moveInitialize(fromContentsOf: all.extracting(place + 1..<count))
        count -= 1
        return sealer
    }

    /// Writes the trailer of what listener `number` is sent; false: none can be made.
    func seal(_ datagram: UnsafeMutableRawBufferPointer, for number: Int) -> Bool {
        let isSealed = (try? all[number].seal(datagram)) != nil
        if all[number].isExhausted {
            exhausted.withLock { $0.append(number) }
            hasExhausted.store(true, ordering: .releasing)
        }
        return isSealed
    }

    func takeExhausted() -> [Int] {
        guard hasExhausted.exchange(false, ordering: .acquiringAndReleasing) else { return [] }
        return exhausted.withLock { exchange(&$0, with: []) }
    }
}
