// The rules about what callers leave unread, about warnings, and about a bus that takes nothing.
import MonotonicTime
import Testing

@testable import DBus

@Suite struct AnswerLedgerTests {
    private let start = Instant.zero
    private let mebibyte = 1 << 20

    @Test func `a caller is asked once it may have left something unread, and only once at a time`() {
        var ledger = AnswerLedger()
        #expect(ledger.answer("a", bytes: 1_000, at: start) == .send(asks: false))
        #expect(ledger.answer("a", bytes: AnswerLedger.askBytes, at: start) == .send(asks: true))
        #expect(ledger.answer("a", bytes: AnswerLedger.askBytes, at: start) == .send(asks: false))
        ledger.answered("a", .read)
        // What was sent after the question may not be read yet.
        #expect(ledger.unread(of: "a") == AnswerLedger.askBytes)
        #expect(ledger.answer("a", bytes: 10, at: start) == .send(asks: true))
    }

    @Test func `a caller that never reads gets short errors, then nothing, and is told of once`() {
        var ledger = AnswerLedger()
        for _ in 0..<4 {
            guard case .send = ledger.answer("a", bytes: mebibyte, at: start) else {
                Issue.record("not sent")
                return
            }
        }
        #expect(ledger.answer("a", bytes: mebibyte, at: start) == .refuse(tells: true))
        var refused = 1
        while case .refuse(let tells) = ledger.answer("a", bytes: mebibyte, at: start) {
            #expect(!tells)
            refused += 1
        }
        #expect(refused == AnswerLedger.errorBytes / AnswerLedger.overhead)
        #expect(ledger.answer("a", bytes: mebibyte, at: start) == .withhold(tells: false))
        #expect(ledger.unread <= AnswerLedger.callerBytes + AnswerLedger.errorBytes)
        // Others are as free as before.
        #expect(ledger.answer("b", bytes: mebibyte, at: start) == .send(asks: true))
        ledger.answered("a", .gone)
        #expect(ledger.unread == mebibyte)
    }

    @Test func `many callers that never read leave room for one that does`() {
        var ledger = AnswerLedger()
        for caller in 0..<256 {
            for _ in 0..<100 { _ = ledger.answer("\(caller)", bytes: 100_000, at: start) }
        }
        #expect(ledger.unread <= AnswerLedger.allBytes)
        for _ in 0..<1_000 {
            guard case .send(let asks) = ledger.answer("reader", bytes: 1_000, at: start) else {
                Issue.record("not sent")
                return
            }
            if asks { ledger.answered("reader", .read) }
        }
    }

    @Test func `a caller that cannot be asked is forgiven with time`() {
        var ledger = AnswerLedger()
        #expect(ledger.answer("a", bytes: AnswerLedger.callerBytes, at: start) == .send(asks: true))
        ledger.answered("a", .unknown)
        #expect(ledger.answer("a", bytes: 100_000, at: start) == .refuse(tells: true))
        let later = start + .seconds(60)
        #expect(ledger.answer("a", bytes: 100_000, at: later) == .send(asks: false))
        // However often it is looked at.
        var busy = AnswerLedger()
        for step in 0..<60_000 { _ = busy.answer("b", bytes: 4, at: start + .milliseconds(step)) }
        #expect(busy.unread(of: "b") < 1_000)
    }

    @Test func `callers that are not known any more count no more`() {
        var ledger = AnswerLedger()
        for caller in 0..<(3 * AnswerLedger.callers) {
            _ = ledger.answer("\(caller)", bytes: 1_000, at: start + .milliseconds(caller))
        }
        #expect(ledger.unread <= AnswerLedger.callers * 1_000)
        #expect(ledger.unread(of: "0") == 0)
    }

    @Test func `a sender is warned of once a minute, and strangers without number are not`() {
        var warned = OncePerSender()
        #expect(warned.mayTell(of: "a", at: start) == true)
        #expect(warned.mayTell(of: "a", at: start + .seconds(59)) == false)
        #expect(warned.mayTell(of: "a", at: start + .seconds(60)) == true)
        let told = (0..<1_000).count { warned.mayTell(of: "\($0)", at: start + .seconds(61)) }
        #expect(told == OncePerSender.senders - 1)
        #expect(warned.mayTell(of: "new", at: start + .seconds(200)) == true)
    }

    @Test func `a bus that takes nothing is given up after a while, not at once`() {
        var congestion = Congestion()
        #expect(congestion.failed(at: start) == false)
        #expect(congestion.failed(at: start + .seconds(4)) == false)
        congestion.sent()
        #expect(congestion.failed(at: start + .seconds(6)) == false)
        #expect(congestion.failed(at: start + .seconds(10)) == false)
        #expect(congestion.failed(at: start + .seconds(11)) == true)
        #expect(congestion.failed(at: start + .seconds(12)) == false)
    }
}
