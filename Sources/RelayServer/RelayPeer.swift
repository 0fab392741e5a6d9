// One connection as the relay's adapter sees it, and the connections that a channel's media go to.
import Cryptography
import QUIC
import RelayProtocol

/// A client's connection with its control stream and the key of its trailers.
final class RelayPeer {
    let id: ConnectionID
    let connection: QUICConnection
    var stream: QUICStream?
    var decoder = MessageDecoder()
    var isConnected = false
    private(set) var sealer: DownlinkSealer?
    private var backlog: [[UInt8]] = []
    private var backlogBytes = 0
    /// What is left to be written of the answers to repair requests, by their streams.
    private var answers: [Int64: [UInt8]] = [:]

    init(id: ConnectionID, connection: QUICConnection) {
        self.id = id
        self.connection = connection
    }

    /// Ends the mutual hold of connection and peer; nothing of the connection is heard any more.
    func detach() {
        connection.context = nil
        connection.delegate = nil
    }

    /// Makes the trailers' key ready, once: its counter must never start again. False when that fails.
    func makeSealer(_ key: DownlinkKey) -> Bool {
        if sealer == nil { sealer = try? DownlinkSealer(key: key) }
        return sealer != nil
    }

    /// Queues a message; false when too much waits already.
    func send(_ bytes: [UInt8], limit: Int) -> Bool {
        guard let stream else { return true }
        if backlog.isEmpty, (try? stream.write(bytes)) != nil { return true }
        guard backlogBytes + bytes.count <= limit else { return false }
        backlog.append(bytes)
        backlogBytes += bytes.count
        return true
    }

    /// Sends `bytes` on a stream of their own; false when too many, or too many bytes, are under way. An answer finds room while nothing
    /// else waits, whatever its size.
    func answer(_ bytes: [UInt8], limit: Int, byteLimit: Int) -> Bool {
        let waiting = answers.values.reduce(0) { $0 + $1.count }
        guard answers.count < limit, waiting == 0 || waiting + bytes.count <= byteLimit,
            let stream = try? connection.openStream()
        else { return false }
        answers[stream.id] = bytes
        continueAnswer(on: stream)
        return true
    }

    /// Writes as much of an answer as there is room for.
    func continueAnswer(on stream: QUICStream) {
        guard let rest = answers[stream.id], !rest.isEmpty else { return }
        let piece = rest.prefix(stream.availableCapacity)
        guard !piece.isEmpty, (try? stream.write(Array(piece), finish: piece.count == rest.count)) != nil else {
            return
        }
        // A copy, so that what has been written is not kept with the rest.
        answers[stream.id] = Array(rest.dropFirst(piece.count))
    }

    /// The stream is over; the client has ended its side too.
    func endAnswer(on stream: QUICStream) { answers[stream.id] = nil }

    /// The control stream takes bytes again.
    func flush() {
        guard let stream else { return }
        var written = 0
        for bytes in backlog {
            guard (try? stream.write(bytes)) != nil else { break }
            written += 1
            backlogBytes -= bytes.count
        }
        backlog.removeFirst(written)
    }
}

/// The listeners of one channel, laid out as the fan-out wants them.
struct ListenerGroup {
    /// Where the next packet goes; valid after `prepare`.
    private(set) var connections: [QUICConnection] = []
    /// Whose trailers it gets, in the same order.
    private(set) var sealers: [DownlinkSealer] = []
    private var peers: [RelayPeer] = []
    private var preparedFor: ConnectionID?

    mutating func insert(_ peer: RelayPeer) {
        remove(peer.id)
        peers.append(peer)
    }

    mutating func remove(_ id: ConnectionID) {
        preparedFor = nil
        peers.removeAll { $0.id == id }
    }

    /// Lays out everyone but the talker; does nothing when that is how they lie.
    mutating func prepare(except talker: ConnectionID) {
        guard preparedFor != talker else { return }
        preparedFor = talker
        connections = []
        sealers = []
        for peer in peers where peer.id != talker {
            guard let sealer = peer.sealer else { continue }
            connections.append(peer.connection)
            sealers.append(sealer)
        }
    }
}
