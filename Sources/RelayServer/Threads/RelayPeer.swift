// One connection as the relay's adapter sees it.
import QUIC
import RelayProtocol

/// A client's connection with its control stream, and which shard hears what it says.
final class RelayPeer {
    let id: ConnectionID
    let connection: QUICConnection
    var stream: QUICStream?
    var decoder = MessageDecoder()
    var isConnected = false
    var route: ConnectionRoute
    private var backlog: [[UInt8]] = []
    private var backlogBytes = 0
    /// What is to be written of the answers to requests for packets, by their streams.
    private var answers: [Int64: Answer] = [:]

    /// An answer, and how much of it is written.
    private struct Answer {
        private var bytes: [UInt8]
        private var written = 0
        init(_ bytes: [UInt8]) { self.bytes = bytes }
        var left: Int { bytes.count - written }
        var rest: ArraySlice<UInt8> { bytes[written...] }

        /// What is written goes once it is more than the rest: a copy of that for every piece would cost the square of it.
        mutating func note(written count: Int) {
            written += count
            guard written > left else { return }
            bytes = Array(rest)
            written = 0
        }
    }

    init(id: ConnectionID, connection: QUICConnection, shard: Int) {
        self.id = id
        route = ConnectionRoute(shard: shard)
        self.connection = connection
    }

    /// Ends the mutual hold of connection and peer; nothing of the connection is heard any more.
    func detach() {
        connection.context = nil
        connection.delegate = nil
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

    /// Sends `bytes` on a stream of their own; false when too many, or too many bytes, are under way. An answer is
    /// accepted while nothing else waits, whatever its size.
    func answer(_ bytes: [UInt8], limit: Int, byteLimit: Int) -> Bool {
        let waiting = answers.values.reduce(0) { $0 + $1.left }
        guard answers.count < limit, waiting == 0 || waiting + bytes.count <= byteLimit,
            let stream = try? connection.openStream()
        else { return false }
        answers[stream.id] = Answer(bytes)
        continueAnswer(on: stream)
        return true
    }

    /// Writes as much of an answer as fits.
    func continueAnswer(on stream: QUICStream) {
        guard let answer = answers[stream.id], answer.left > 0 else { return }
        let piece = answer.rest.prefix(stream.availableCapacity)
        guard !piece.isEmpty, (try? stream.write(Array(piece), finish: piece.count == answer.left)) != nil else {
            return
        }
        answers[stream.id]?.note(written: piece.count)
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
