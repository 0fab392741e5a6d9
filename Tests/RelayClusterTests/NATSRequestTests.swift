// Requests and answers without a stream, with a real nats-server.
import Dispatch
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import NATS

@Suite(.timeLimit(.minutes(2)), .serialized) struct NATSRequestTests {
    /// What a handler was given.
    private final class Seen: Sendable {
        private let kept = Mutex<[NATSRequest]>([])
        var requests: [NATSRequest] { kept.withLock { $0 } }
        func take(_ request: NATSRequest) { kept.withLock { $0.append(request) } }
        func reaches(_ count: Int) -> Bool { NATSRequestTests.eventually { requests.count >= count } }
    }

    /// How many of these there are.
    private final class Held: Sendable {
        private let count: Count
        init(_ count: Count) {
            self.count = count
            count.value.withLock { $0 += 1 }
        }
        deinit { count.value.withLock { $0 -= 1 } }
        func use() {}
    }
    private final class Count: Sendable {
        let value = Mutex(0)
        var isZero: Bool { value.withLock { $0 == 0 } }
    }

    private static func eventually(_ condition: () -> Bool) -> Bool {
        for _ in 0..<500 {
            if condition() { return true }
            usleep(20_000)
        }
        return false
    }

    private func kind(_ body: () throws -> Void) -> NATSError.Kind? {
        #expect(throws: NATSError.self) { try body() }?.kind
    }

    @Test func `a request is answered, from another connection and from the same one`() throws {
        let server = try NATSServer()
        let connections = try (0..<2).map { _ in try NATSConnection(server.options) }
        let subscription = try connections[0].answer("test.echo", waitingMaximum: 8) { $0.reply($0.bytes + [1]) }
        for connection in connections {
            for bytes: [UInt8] in [[], [0, 255, 10, 13], Array(repeating: 7, count: 300_000)] {
                #expect(try connection.request(bytes, to: "test.echo", wait: .seconds(5)) == bytes + [1])
            }
        }
        let time = try ContinuousClock().measure {
            for number: UInt8 in 0..<200 {
                let answer = try connections[1].request([number], to: "test.echo", wait: .seconds(5))
                #expect(answer == [number, 1])
            }
        }
        print("an answer takes \(time / 200)")
        subscription.cancel()
        #expect(kind { _ = try connections[0].request([1], to: "test.echo", wait: .seconds(5)) } == .noResponder)
    }

    @Test func `nobody there, nobody who answers, and no server are told apart`() throws {
        let server = try NATSServer()
        let connection = try NATSConnection(server.options)
        let time = ContinuousClock().measure {
            let error = #expect(throws: NATSError.self) {
                _ = try connection.request([1], to: "test.nobody", wait: .seconds(20))
            }
            #expect(error?.kind == .noResponder && "\(error!)".contains("see whether it runs"))
        }
        #expect(time < .seconds(5))
        let seen = Seen()
        let subscription = try connection.answer("test.silent", waitingMaximum: 8) { seen.take($0) }
        #expect(kind { _ = try connection.request([1], to: "test.silent", wait: .milliseconds(100)) } == .noAnswer)
        #expect(seen.reaches(1))
        // Without JetStream, that is what is missing, and not another relay.
        #expect(kind { _ = try connection.state(of: "LOG", wait: .seconds(2)) } == .noStream)
        for subject in ["", "a b", "a\r\nPUB b 0", "a\t"] {
            #expect(kind { _ = try connection.request([1], to: subject, wait: .seconds(1)) } == .other)
            #expect(kind { try connection.publish([1], to: subject) } == .other)
            #expect(kind { _ = try connection.answer(subject, waitingMaximum: 1) { _ in } } == .other)
        }
        server.stop()
        #expect(
            Self.eventually {
                do throws(NATSError) {
                    _ = try connection.request([1], to: "test.silent", wait: .milliseconds(100))
                } catch {
                    return error.kind == .unreachable
                }
                return false
            })
        #expect(kind { try connection.publish([1], to: "test.silent") } == .unreachable)
        seen.requests[0].reply([1])
        subscription.cancel()
    }

    @Test func `an answer may come later, once, from any thread`() throws {
        let server = try NATSServer()
        let connection = try NATSConnection(server.options)
        let seen = Seen()
        let subscription = try connection.answer("test.later", waitingMaximum: 8) { seen.take($0) }
        let result = Mutex<[UInt8]?>(nil)
        let group = DispatchGroup()
        DispatchQueue.global().async(group: group) {
            let answer = try? connection.request([5], to: "test.later", wait: .seconds(10))
            result.withLock { $0 = answer }
        }
        #expect(seen.reaches(1))
        let request = try #require(seen.requests.first)
        let copy = request
        request.reply([6])
        copy.reply([7])
        request.reply([8])
        #expect(group.wait(timeout: .now() + 10) == .success)
        #expect(result.withLock { $0 } == [6])
        // Nobody waits for an answer to a message.
        try connection.publish([9], to: "test.later")
        #expect(seen.reaches(2))
        let message = try #require(seen.requests.last)
        #expect(message.bytes == [9])
        message.reply([1])
        subscription.cancel()
    }

    @Test func `what waits for a handler has a bound, and so has a message`() throws {
        let server = try NATSServer(configuration: "max_payload: 4MB")
        let connection = try NATSConnection(server.options)
        let (seen, gate) = (Seen(), DispatchSemaphore(value: 0))
        let subscription = try connection.answer("test.slow", waitingMaximum: 4) { request in
            gate.wait()
            seen.take(request)
        }
        for number: UInt8 in 0..<50 { try connection.publish([number], to: "test.slow") }
        #expect(kind { _ = try connection.request([50], to: "test.slow", wait: .milliseconds(500)) } == .noAnswer)
        // They have all arrived once this one has, on the same connection.
        let mark = try connection.answer("test.mark", waitingMaximum: 1) { $0.reply([]) }
        #expect(try connection.request([], to: "test.mark", wait: .seconds(10)) == [])
        mark.cancel()
        for _ in 0..<60 { gate.signal() }
        #expect(seen.reaches(4))
        usleep(200_000)
        #expect((4...5).contains(seen.requests.count), "one is with the handler")
        #expect(seen.requests.first?.bytes == [0])
        let before = seen.requests.count
        let longest = NATSConnection.requestByteCountMaximum
        for count in [longest + 1, longest, 1] {
            try connection.publish([UInt8](repeating: 1, count: count), to: "test.slow")
        }
        #expect(seen.reaches(before + 2))
        #expect(seen.requests.dropFirst(before).map(\.bytes.count) == [longest, 1])
        subscription.cancel()

        let long = try connection.answer("test.long", waitingMaximum: 4) {
            $0.reply([UInt8](repeating: 1, count: longest + 1))
        }
        #expect(kind { _ = try connection.request([], to: "test.long", wait: .seconds(5)) } == .other)
        long.cancel()
    }

    @Test func `a subscription outlives a restart of the server`() throws {
        let server = try NATSServer()
        let connections = try (0..<2).map { _ in try NATSConnection(server.options) }
        let subscription = try connections[0].answer("test.echo", waitingMaximum: 8) { $0.reply($0.bytes) }
        #expect(try connections[1].request([1], to: "test.echo", wait: .seconds(5)) == [1])
        server.stop()
        // One that is made without a server works once there is one.
        let other = try connections[1].answer("test.other", waitingMaximum: 8) { $0.reply([2]) }
        try server.start()
        for subject in ["test.echo", "test.other"] {
            for connection in connections {
                #expect(
                    Self.eventually { (try? connection.request([2], to: subject, wait: .milliseconds(200))) == [2] },
                    "\(subject)")
            }
        }
        subscription.cancel()
        other.cancel()
    }

    @Test func `a cancelled subscription hands over nothing, and lets go of all`() throws {
        let server = try NATSServer()
        let connection = try NATSConnection(server.options)
        let (seen, count) = (Seen(), Count())
        var subscription: NATSSubscription?
        do {
            let held = Held(count)
            subscription = try connection.answer("test.a", waitingMaximum: 8) { request in
                held.use()
                seen.take(request)
            }
        }
        try connection.publish([1], to: "test.a")
        #expect(seen.reaches(1) && !count.isZero)
        subscription?.cancel()
        subscription?.cancel()
        #expect(count.isZero)
        try connection.publish([2], to: "test.a")
        #expect(kind { _ = try connection.request([3], to: "test.a", wait: .seconds(5)) } == .noResponder)
        #expect(seen.requests.count == 1)
        // Dropped instead; and by its own handler.
        subscription = try connection.answer("test.a", waitingMaximum: 8) { [held = Held(count)] _ in held.use() }
        subscription = nil
        #expect(Self.eventually { count.isZero })
        let own = Mutex<NATSSubscription?>(nil)
        let cancelling = try connection.answer("test.b", waitingMaximum: 8) { [held = Held(count)] request in
            held.use()
            own.withLock { $0 }?.cancel()
            request.reply([1])
        }
        own.withLock { $0 = cancelling }
        #expect(try connection.request([1], to: "test.b", wait: .seconds(5)) == [1])
        #expect(kind { _ = try connection.request([1], to: "test.b", wait: .seconds(5)) } == .noResponder)
        #expect(Self.eventually { count.isZero })
    }

    @Test func `subscriptions come and go while messages pour in`() throws {
        let server = try NATSServer()
        let connection = try NATSConnection(server.options)
        let goesOn = Mutex(true)
        let seen = Mutex(0)
        let count = Count()
        let group = DispatchGroup()
        DispatchQueue.global().async(group: group) {
            guard let sender = try? NATSConnection(server.options) else { return }
            while goesOn.withLock({ $0 }) { try? sender.publish([1, 2, 3], to: "test.flood") }
        }
        for round in 0..<200 {
            let subscription = try connection.answer("test.flood", waitingMaximum: 16) { [held = Held(count)] request in
                held.use()
                seen.withLock { $0 += 1 }
                request.reply([1])
            }
            usleep(UInt32(round % 7) * 300)
            if round.isMultiple(of: 2) { subscription.cancel() }
        }
        goesOn.withLock { $0 = false }
        group.wait()
        #expect(Self.eventually { count.isZero })
        #expect(seen.withLock { $0 } > 0)
    }

    @Test func `an answer after the connection was closed goes nowhere`() throws {
        let server = try NATSServer()
        let asking = try NATSConnection(server.options)
        let seen = Seen()
        var connection: NATSConnection? = try NATSConnection(server.options)
        weak let kept = connection
        var subscription = try connection?.answer("test.closed", waitingMaximum: 8) { seen.take($0) }
        connection = nil
        #expect(kept != nil && subscription != nil, "a subscription keeps its connection")
        #expect(kind { _ = try asking.request([1], to: "test.closed", wait: .milliseconds(200)) } == .noAnswer)
        #expect(seen.reaches(1))
        subscription = nil
        #expect(Self.eventually { kept == nil }, "a request does not")
        seen.requests[0].reply([1])
        // The server learns in its own time that the connection has gone.
        let hasGone = Self.eventually {
            kind { _ = try asking.request([1], to: "test.closed", wait: .seconds(1)) } == .noResponder
        }
        #expect(hasGone)

        // The last reference to a connection goes in a handler, on a thread of libnats.
        let last = Mutex<(NATSConnection?, NATSSubscription?)>((try NATSConnection(server.options), nil))
        weak let other = last.withLock { $0.0 }
        let dropping = try last.withLock { $0.0 }?.answer("test.last", waitingMaximum: 8) { _ in
            last.withLock { $0 = (nil, nil) }
        }
        last.withLock { $0.1 = dropping }
        try asking.publish([1], to: "test.last")
        _ = consume dropping
        #expect(Self.eventually { other == nil })
    }

    @Test func `a server that stands still holds up nobody for long`() throws {
        let server = try NATSServer()
        let connection = try NATSConnection(server.options)
        let subscription = try connection.answer("test.still", waitingMaximum: 8) { $0.reply([1]) }
        server.send(SIGSTOP)
        let body = [UInt8](repeating: 1, count: 1 << 20)
        let clock = ContinuousClock()
        var longest = Duration.zero
        // More than any socket's buffers.
        let end = clock.now + .seconds(9)
        for _ in 0..<200 where clock.now < end {
            longest = max(longest, clock.measure { try? connection.publish(body, to: "test.nobody") })
        }
        print("the longest call took \(longest)")
        #expect(longest < .seconds(8))
        server.send(SIGCONT)
        #expect(
            Self.eventually { (try? connection.request([2], to: "test.still", wait: .milliseconds(500))) == [1] })
        subscription.cancel()
    }
}
