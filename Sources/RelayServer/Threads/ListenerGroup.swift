// The connections that receive a channel's media, each with its own trailers.
import QUIC
import RelayProtocol
import Synchronization

/// The listeners of one channel, laid out for the fan-out, so that a packet needs no iteration over connections.
final class ListenerGroup {
    /// Their connections; valid after `prepare`.
    let recipients: FanOutGroup
    private var peers: [RelayPeer] = []
    private let sealers: Sealers
    private var numbers: [ConnectionID: Int] = [:]
    private var isPrepared = true

    init() {
        let sealers = Sealers()
        self.sealers = sealers
        recipients = FanOutGroup(trailerLength: DownlinkTrailer.byteCount) { sealers.seal($1, for: $0) }
    }

    /// Takes `peer` in, whose sealer has been made.
    func insert(_ peer: RelayPeer) {
        guard let sealer = peer.sealer, !peers.contains(where: { $0 === peer }) else { return }
        peers.append(peer)
        sealers.append(sealer)
        isPrepared = false
    }

    func remove(_ id: ConnectionID) {
        guard let place = peers.firstIndex(where: { $0.id == id }) else { return }
        peers.remove(at: place).sealer = sealers.remove(at: place)
        isPrepared = false
    }

    /// Rebuilds the layout if listeners have changed. Returns the index of `talker` if it is one of them.
    func prepare(for talker: ConnectionID) -> Int? {
        if !isPrepared {
            isPrepared = true
            recipients.connections = peers.map(\.connection)
            numbers = [:]
            for (number, peer) in peers.enumerated() { numbers[peer.id] = number }
        }
        return numbers[talker]
    }

    /// Takes out those who can be sent nothing more on their connections.
    func removeExhausted() -> [ConnectionID] {
        let exhausted = sealers.takeExhausted().map { peers[$0].id }
        for id in exhausted { remove(id) }
        return exhausted
    }
}

/// The sealers of the listeners' trailers, in their order, side by side in memory.
///
/// One thread uses it, except that several threads may call `seal` at once for different listeners while nothing else
/// is called.
private final class Sealers: @unchecked Sendable {
    private var all = UnsafeMutableBufferPointer<DownlinkSealer>.allocate(capacity: 0)
    private var count = 0
    /// Those whose last counter has been used.
    private let exhausted = Mutex<[Int]>([])

    deinit {
        all.baseAddress?.deinitialize(count: count)
        all.deallocate()
    }

    func append(_ sealer: DownlinkSealer) {
        if count == all.count {
            let larger = UnsafeMutableBufferPointer<DownlinkSealer>.allocate(capacity: max(8, count * 2))
            _ = larger.moveInitialize(fromContentsOf: all.extracting(..<count))
            all.deallocate()
            all = larger
        }
        all.initializeElement(at: count, to: sealer)
        count += 1
    }

    func remove(at place: Int) -> DownlinkSealer {
        let sealer = all.moveElement(from: place)
        _ = all.extracting(place..<count - 1).moveInitialize(fromContentsOf: all.extracting(place + 1..<count))
        count -= 1
        return sealer
    }

    /// Writes the trailer of what listener `number` is sent.
    func seal(_ datagram: UnsafeMutableRawBufferPointer, for number: Int) {
        // A trailer that cannot be made stays as it is; the listener drops the packet by its MAC.
        try? all[number].seal(datagram)
        if all[number].isExhausted { exhausted.withLock { $0.append(number) } }
    }

    func takeExhausted() -> [Int] {
        exhausted.withLock { numbers in
            guard !numbers.isEmpty else { return [] }
            defer { numbers = [] }
            return numbers
        }
    }
}
