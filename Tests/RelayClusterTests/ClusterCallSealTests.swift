// Sealed calls between the nodes of a cluster: whoever writes to NATS cannot make, alter or repeat one.
import Cryptography
import TestSupport
import Testing

@testable import RelayCluster

@Suite struct ClusterCallSealTests {
    /// Classes, as the macros call nothing that is mutating.
    private final class Caller {
        private var rules: ClusterCallSeal
        init(_ relay: ClusterIdentity, _ incarnation: String) {
            rules = ClusterCallSeal(identity: relay, incarnation: incarnation)
        }
        func seal(
            _ body: [UInt8], to recipient: String, at time: Int64 = 0
        ) -> (message: [UInt8], number: UInt64)? {
            rules.seal(body, to: recipient, at: time)
        }
        func sealed(_ body: [UInt8], to recipient: String, at time: Int64 = 0) throws -> [UInt8] {
            try #require(seal(body, to: recipient, at: time)).message
        }
        func open(_ answer: [UInt8], to number: UInt64, of recipient: String) -> [UInt8]? {
            rules.open(answer, to: number, of: recipient)
        }
    }

    private final class Callee {
        private var rules: ClusterCallSeal
        init(_ relay: ClusterIdentity, _ incarnation: String) {
            rules = ClusterCallSeal(identity: relay, incarnation: incarnation)
        }
        func open(_ message: [UInt8]) -> ClusterCallSeal.Call? { rules.open(message) }
        func seal(_ answer: [UInt8], to call: ClusterCallSeal.Call) -> [UInt8]? { rules.seal(answer, to: call) }
        /// Opens a message, and does not remember it.
        func peek(_ message: [UInt8]) -> ClusterCallSeal.Call? {
            var rules = rules
            return rules.open(message)
        }
    }

    private let relay: ClusterIdentity
    private let caller: Caller
    private let callee: Callee

    init() throws {
        relay = try ClusterIdentity(Identity(generating: "relay"))
        caller = Caller(relay, "aa01")
        callee = Callee(relay, "bb02")
    }

    private func request(_ body: [UInt8] = [1, 2, 3]) throws -> (message: [UInt8], number: UInt64) {
        try #require(caller.seal(body, to: "bb02"))
    }

    /// A request and its answer, which nobody has opened.
    private func exchange() throws -> (message: [UInt8], number: UInt64, answer: [UInt8]) {
        let (message, number) = try request()
        let call = try #require(callee.peek(message))
        return (message, number, try #require(callee.seal([4, 5, 6], to: call)))
    }

    @Test func `a request and its answer arrive`() throws {
        for body: [UInt8] in [[], [7], Array(0...255)] {
            let (message, number) = try request(body)
            let call = try #require(callee.open(message))
            #expect(call == ClusterCallSeal.Call(caller: "aa01", number: number, body: body))
            for answer: [UInt8] in [[], [9], body + body] {
                let sealed = try #require(callee.seal(answer, to: call))
                #expect(caller.open(sealed, to: number, of: "bb02") == answer)
            }
        }
    }

    @Test func `another relay's key forges neither a request nor an answer`() throws {
        let other = try ClusterIdentity(Identity(generating: "relay"))
        let forger = Caller(other, "aa01")
        let forged = try forger.sealed([1], to: "bb02")
        #expect(callee.peek(forged) == nil)
        let (message, number) = try request()
        let call = try #require(callee.open(message))
        let answer = try #require(Callee(other, "bb02").seal([1], to: call))
        #expect(caller.open(answer, to: number, of: "bb02") == nil)
        // The log's key is another one.
        let body = Array(message.dropLast(ClusterIdentity.codeByteCount))
        #expect(callee.peek(relay.seal(body, at: number, of: "bb02")) == nil)
        #expect(callee.peek(relay.seal([], at: number, of: "bb02")) == nil)
    }

    @Test func `an altered byte is noticed, wherever it is`() throws {
        let (message, number, answer) = try exchange()
        for change: UInt8 in [1, 0x80, 0xFF] {
            for index in message.indices {
                var altered = message
                altered[index] ^= change
                #expect(callee.peek(altered) == nil, "request, byte \(index)")
            }
            for index in answer.indices {
                var altered = answer
                altered[index] ^= change
                #expect(caller.open(altered, to: number, of: "bb02") == nil, "answer, byte \(index)")
            }
        }
        #expect(callee.peek(message) != nil && caller.open(answer, to: number, of: "bb02") == [4, 5, 6])
    }

    @Test func `a message that is cut or longer is noticed`() throws {
        let (message, number, answer) = try exchange()
        for count in message.indices {
            #expect(
                callee.peek(Array(message.prefix(count))) == nil && callee.peek(Array(message.suffix(count))) == nil)
        }
        for count in answer.indices {
            #expect(caller.open(Array(answer.prefix(count)), to: number, of: "bb02") == nil)
            #expect(caller.open(Array(answer.suffix(count)), to: number, of: "bb02") == nil)
        }
        #expect(callee.peek(message + [0]) == nil && callee.peek([0] + message) == nil)
        #expect(caller.open(answer + [0], to: number, of: "bb02") == nil)
        // A length of the caller that reaches beyond the message.
        var long = message
        for count: UInt8 in [0, 1, 3, 64, 65, 255] {
            long[2] = count
            #expect(callee.peek(long) == nil)
        }
    }

    @Test func `nothing is taken twice, and numbers may come in any order`() throws {
        var requests: [[UInt8]] = []
        for _ in 0..<64 { requests.append(try request().message) }
        var generator = SeededGenerator(seed: 1)
        for message in requests.shuffled(using: &generator) { #expect(callee.open(message) != nil) }
        for message in requests.shuffled(using: &generator) { #expect(callee.open(message) == nil) }
        // One that was never seen, and is too old to tell.
        let late = try request().message
        for _ in 0..<ReplayWindow.size {
            let next = try request().message
            #expect(callee.open(next) != nil)
        }
        #expect(callee.open(late) == nil)
        #expect(callee.open(requests[63]) == nil)
    }

    @Test func `a request is for one node, and for one run of it`() throws {
        let (message, _) = try request()
        for other in ["bb03", "bb0", "bb022", "aa01", "BB02"] {
            let callee = Callee(relay, other)
            #expect(callee.open(message) == nil, "\(other)")
        }
        // Whatever the recipient is called, nothing fails.
        for recipient in ["", "é", String(repeating: "x", count: 10_000), "bb02\0"] {
            let strange = try caller.sealed([1], to: recipient)
            #expect(callee.peek(strange) == nil)
        }
        #expect(callee.open(message) != nil)
    }

    @Test func `an answer is to one request, of one node, by one node`() throws {
        let (message, number) = try request()
        let (next, nextNumber) = try request()
        let call = try #require(callee.open(message))
        let nextCall = try #require(callee.open(next))
        let answer = try #require(callee.seal([4], to: call))
        #expect(number != nextNumber && call.number != nextCall.number)
        for other in [nextNumber, 0, .max] { #expect(caller.open(answer, to: other, of: "bb02") == nil) }
        for other in ["bb03", "aa01", ""] { #expect(caller.open(answer, to: number, of: other) == nil) }
        let otherCaller = Caller(relay, "aa02")
        #expect(otherCaller.open(answer, to: number, of: "bb02") == nil)
        #expect(caller.open(answer, to: number, of: "bb02") == [4])
        // Neither is the other: a node that asks itself has the same names in both.
        let own = Callee(relay, "aa01")
        let (toItself, ownNumber) = try #require(caller.seal([4], to: "aa01"))
        #expect(caller.open(toItself, to: ownNumber, of: "aa01") == nil)
        let ownCall = try #require(own.open(toItself))
        let ownAnswer = try #require(own.seal([4], to: ownCall))
        #expect(own.open(ownAnswer) == nil && callee.peek(answer) == nil)
        for (kind, message) in [(UInt8(2), toItself), (1, ownAnswer)] {
            var changed = message
            changed[1] = kind
            #expect(own.open(changed) == nil && caller.open(changed, to: ownNumber, of: "aa01") == nil)
        }
    }

    @Test func `a new caller is answered however many there were, and nothing is taken twice`() throws {
        let callers = (0..<ClusterCallSeal.callersMaximum + 64).map { Caller(relay, "c\($0)") }
        let hour: Int64 = 3_600
        var taken: [[UInt8]] = []
        // Each node starts again and again, and one is there all the time.
        for index in callers.indices {
            for time in [Int64(index) * hour, Int64(index) * hour + 1] {
                let message = try callers[index].sealed([UInt8(truncatingIfNeeded: index)], to: "bb02", at: time)
                // What is forged makes nobody forgotten.
                var forged = message
                forged[4] ^= 1
                #expect(callee.open(forged) == nil)
                #expect(callee.open(message)?.caller == "c\(index)", "caller \(index)")
                taken.append(message)
            }
            let steady = try caller.sealed([], to: "bb02", at: Int64(index) * hour)
            #expect(callee.open(steady)?.caller == "aa01")
            taken.append(steady)
        }
        for repeated in taken { #expect(callee.open(repeated) == nil) }
        // One that was forgotten is known again, and what it has sent before is not.
        let now = Int64(callers.count) * hour
        for body: UInt8 in 1...2 {
            let late = try callers[0].sealed([body], to: "bb02", at: now)
            #expect(callee.open(late)?.body == [body])
            taken.append(late)
        }
        for repeated in taken { #expect(callee.open(repeated) == nil) }
    }

    @Test func `callers of one hour are answered, one with a late clock is not, and nothing is taken twice`() throws {
        let time: Int64 = 9 * 3_600
        let callers = (0..<ClusterCallSeal.callersMaximum).map { Caller(relay, "c\($0)") }
        var taken: [[UInt8]] = []
        for _ in 1...2 {
            for caller in callers {
                let message = try caller.sealed([], to: "bb02", at: time)
                #expect(callee.open(message) != nil)
                taken.append(message)
            }
        }
        let early = try request().message
        #expect(callee.open(early) == nil)
        let right = try caller.sealed([1], to: "bb02", at: time + 3_600)
        #expect(callee.open(right)?.body == [1])
        taken.append(right)
        // The one that was forgotten for it comes back in place of another one, and so on.
        let count = taken.count
        for caller in callers {
            let message = try caller.sealed([], to: "bb02", at: time)
            if callee.open(message) != nil { taken.append(message) }
        }
        #expect(taken.count - count >= callers.count - 1)
        for repeated in taken { #expect(callee.open(repeated) == nil) }
        // A new run answers again.
        let next = Callee(relay, "bb03")
        let other = Caller(relay, "aa02")
        #expect(next.open(try other.sealed([1], to: "bb03")) != nil)
        #expect(next.open(right) == nil && next.open(early) == nil)
    }

    @Test func `a clock that goes back, or is beyond all, makes no number again`() throws {
        var before: UInt64 = 0
        for time: Int64 in [-1, .min, 0, 3_599, 3_600, 7_200, 3_600, .max, 0, .max] {
            let number = try #require(caller.seal([], to: "bb02", at: time)).number
            #expect(number > before)
            before = number
        }
    }

    @Test func `bodies have a longest one`() throws {
        let longest = [UInt8](repeating: 7, count: ClusterCallSeal.bodyByteCountMaximum)
        let (message, number) = try request(longest)
        let call = try #require(callee.open(message))
        #expect(call.body == longest)
        let answer = try #require(callee.seal(longest, to: call))
        #expect(caller.open(answer, to: number, of: "bb02") == longest)
        #expect(caller.seal(longest + [7], to: "bb02") == nil && callee.seal(longest + [7], to: call) == nil)
        // A caller with the longest name.
        let name = String(repeating: "f", count: ClusterCallSeal.incarnationLengthMaximum)
        let other = Caller(relay, name)
        let named = try other.sealed(longest, to: "bb02")
        #expect(callee.open(named)?.caller == name)
    }

    @Test func `no bytes are opened that no node has written`() throws {
        var generator = SeededGenerator(seed: 1_234)
        let (message, number, answer) = try exchange()
        for round in 0..<5_000 {
            var bytes = generator.bytes(Int.random(in: 0...120, using: &generator))
            switch round % 4 {
            // With a head that is right.
            case 1: bytes = [1, UInt8.random(in: 1...2, using: &generator)] + bytes
            // Pieces of what was written, in between.
            case 2: bytes = Array(message.prefix(Int.random(in: 0...40, using: &generator))) + bytes
            case 3: bytes += answer.suffix(Int.random(in: 0..<answer.count, using: &generator))
            default: break
            }
            guard bytes != message, bytes != answer else { continue }
            #expect(callee.open(bytes) == nil && caller.open(bytes, to: number, of: "bb02") == nil, "\(bytes)")
        }
        #expect(callee.open(message) != nil && caller.open(answer, to: number, of: "bb02") == [4, 5, 6])
    }
}
