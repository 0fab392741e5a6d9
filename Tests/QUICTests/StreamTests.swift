import QUIC
import Testing

@Suite struct StreamTests {
    @Test func `streams carry bytes both ways and end`() async throws {
        let (server, client, connection) = try await connectedPair()
        try await server.on { peer in
            peer.onBytes = { stream, bytes in
                do { try stream.write(bytes.reversed(), finish: true) } catch { Issue.record(error) }
            }
        }
        let id = try await client.on { _ in
            let stream = try connection.openStream()
            try stream.write([1, 2, 3], finish: true)
            #expect(throws: QUICError.streamFinished) { try stream.write([4]) }
            return stream.id
        }
        try await client.wait("both ends") { $0.ended.contains(id) && $0.streamCloses[id] != nil }
        #expect(try await client.on { $0.received[id] } == [3, 2, 1])
        #expect(try await client.on { $0.streamCloses[id] } == .some(nil))
        try await server.wait("closed there") { $0.streamCloses[id] != nil }
        #expect(try await server.on { $0.received[id] } == [1, 2, 3])
        try await client.stop()
        try await server.stop()
    }

    @Test func `a large transfer keeps to the buffers both ways`() async throws {
        let (server, client, connection) = try await connectedPair { $0.streamSendBuffer = 20_000 }
        let payload = (0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 9) }
        let id = try await client.on { peer in
            let stream = try connection.openStream()
            #expect(stream.availableCapacity == 20_000)
            #expect(throws: QUICError.sendBufferFull(needed: 20_001, available: 20_000)) {
                try stream.write(Array(repeating: 0, count: 20_001))
            }
            peer.outgoing[stream.id] = payload[...]
            peer.pump(stream)
            #expect(stream.availableCapacity == 0)
            return stream.id
        }
        try await server.wait("opened") { !$0.streams.isEmpty }
        try await server.on { peer in
            peer.outgoing[id] = payload[...]
            peer.pump(peer.streams[0])
        }
        try await server.wait("all of it", timeout: .seconds(60)) { $0.ended.contains(id) }
        try await client.wait("all of it", timeout: .seconds(60)) { $0.ended.contains(id) }
        #expect(try await server.on { $0.received[id] == payload })
        #expect(try await client.on { $0.received[id] == payload })
        try await client.stop()
        try await server.stop()
    }

    @Test func `what is not read holds the sender back`() async throws {
        let (server, client, connection) = try await connectedPair {
            $0.streamReceiveWindow = 16_384
            $0.streamSendBuffer = 8_192
        }
        try await server.on { $0.reading = false }
        let payload = (0..<200_000).map { UInt8(truncatingIfNeeded: $0) }
        let id = try await client.on { peer in
            let stream = try connection.openStream()
            peer.outgoing[stream.id] = payload[...]
            peer.pump(stream)
            return stream.id
        }
        try await server.wait("opened") { !$0.streams.isEmpty }
        // The window and one send buffer are all that can have left.
        try await client.wait("stuck") { payload.count - ($0.outgoing[id]?.count ?? 0) >= 16_384 }
        try await Task.sleep(for: .milliseconds(200))
        #expect(try await client.on { $0.outgoing[id]?.count ?? 0 } >= payload.count - 16_384 - 8_192)
        // Other streams go on meanwhile, within the connection's window.
        try await client.on { peer in try connection.openStream().write([7]) }
        try await server.wait("the other one") { $0.streams.count == 2 }
        try await server.on { peer in
            peer.reading = true
            for stream in peer.streams { peer.drain(stream) }
        }
        try await server.wait("all of it") { $0.ended.contains(id) }
        #expect(try await server.on { $0.received[id] == payload })
        try await client.stop()
        try await server.stop()
    }

    @Test func `a reset stream ends at the peer with its code`() async throws {
        let (server, client, connection) = try await connectedPair()
        let id = try await client.on { _ in
            let stream = try connection.openStream()
            try stream.write([1])
            return stream.id
        }
        try await server.wait("there") { $0.received[id] == [1] }
        try await client.on { peer in
            let stream = try connection.openStream()
            try stream.write([9])
            stream.reset(errorCode: 1)
        }
        try await server.on { $0.streams[0].reset(errorCode: 42) }
        try await client.wait("told") { $0.streamCloses[id] != nil }
        #expect(try await client.on { $0.streamCloses[id] } == .some(42))
        try await client.stop()
        try await server.stop()
    }

    @Test func `the peers limit on streams is kept and renewed`() async throws {
        let (server, client, connection) = try await connectedPair { $0.maximumPeerStreams = 2 }
        try await server.on { $0.onBytes = { stream, _ in stream.finish() } }
        let (first, second) = try await client.on { _ in
            let streams = (try connection.openStream(), try connection.openStream())
            #expect(throws: QUICError.streamLimitReached) { try connection.openStream() }
            return streams
        }
        for round in 1...20 {
            // One more for each that has ended.
            let id = try await client.on { _ in
                let stream = round == 1 ? first : try connection.openStream()
                try stream.write([UInt8(round)], finish: true)
                return stream.id
            }
            try await client.wait("over") { $0.streamCloses[id] != nil }
            try await client.wait("renewed") { _ in connection.availableStreams == 1 }
        }
        try await client.on { _ in try second.write([1]) }
        try await client.stop()
        try await server.stop()
    }
}
