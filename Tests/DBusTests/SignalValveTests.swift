// Of a flood the newest state is let through, always, and nobody else waits for it.
import MonotonicTime
import TestSupport
import Testing

@testable import DBus

private func valve() -> SignalValve<Int> { SignalValve(burst: 4, interval: .milliseconds(20)) }

@Suite struct SignalValveTests {
    @Test func `a quiet group is let through at once`() {
        var valve = valve()
        for number in 0..<100 {
            let now = Instant.zero + .milliseconds(25) * number
            let passes = valve.arrive(number, item: "a", of: "x", at: now)
            #expect(passes)
        }
        #expect(valve.takeReports().isEmpty)
    }

    @Test func `a flood is let through at its rate, and ends with what was said last`() {
        var valve = valve()
        var read: [Int] = []
        var now = Instant.zero
        for number in 0..<4000 {
            now = Instant.zero + .microseconds(500) * number
            read += valve.takeDue(at: now)
            if valve.arrive(number, item: "a", of: "x", at: now) { read.append(number) }
        }
        #expect((95...106).contains(read.count), "\(read.count)")
        while let deadline = valve.nextDeadline {
            now = max(now, deadline)
            read += valve.takeDue(at: now)
        }
        #expect(read.last == 3999)
        #expect(read == read.sorted())
        let reports = valve.takeReports()
        #expect(reports.count == 2)
        #expect(reports.first?.perSecond.map { (100...3_000).contains($0) } == true)
        #expect(reports.last == .init("x", perSecond: nil))
        #expect(now - Instant.zero <= .seconds(2) + SignalValve<Int>.calmTime)
    }

    @Test func `a group does not wait for another's flood`() {
        var valve = valve()
        for number in 0..<1000 { _ = valve.arrive(number, item: "a", of: "x", at: .zero) }
        let passes = valve.arrive(7, item: "a", of: "y", at: .zero)
        #expect(passes)
    }

    @Test func `each item of a group keeps its newest, in order`() {
        var valve = valve()
        for number in 0..<4 { _ = valve.arrive(number, item: "a", of: "x", at: .zero) }
        for number in 10..<20 { _ = valve.arrive(number, item: number % 2 == 0 ? "a" : "b", of: "x", at: .zero) }
        #expect(valve.takeAll(of: "x") == [18, 19])
        #expect(valve.takeAll(of: nil).isEmpty)
    }

    @Test func `what must not be overtaken takes everything along that waits`() {
        var valve = valve()
        for group in ["x", "y"] {
            for number in 0..<5 { _ = valve.arrive(number, item: "a", of: group, at: .zero) }
        }
        #expect(valve.takeAll(of: "x") == [4])
        #expect(valve.takeAll(of: nil) == [4])
        #expect(valve.nextDeadline == nil)
    }

    @Test func `groups and items are bounded, and what is beyond is let through`() {
        var valve = valve()
        for number in 0..<SignalValve<Int>.groupsMax {
            for _ in 0..<5 { _ = valve.arrive(number, item: "a", of: "\(number)", at: .zero) }
        }
        let isOther = valve.arrive(0, item: "a", of: "other", at: .zero)
        #expect(isOther)
        for number in 1..<SignalValve<Int>.itemsMax {
            let passes = valve.arrive(number, item: "\(number)", of: "0", at: .zero)
            #expect(!passes)
        }
        let isBeyond = valve.arrive(0, item: "beyond", of: "0", at: .zero)
        #expect(isBeyond)
        // Once they are quiet they are forgotten.
        for seconds in 1...20 { _ = valve.takeDue(at: .zero + .seconds(100) * seconds) }
        let later = Instant.zero + .seconds(5_000)
        for number in 0..<4 { _ = valve.arrive(number, item: "a", of: "other", at: later) }
        let passes = valve.arrive(4, item: "a", of: "other", at: later)
        #expect(!passes)
    }

    @Test func `whatever comes, the newest of each item is let through in the end, at most at the rate`() {
        var seeds = SeededGenerator()
        for _ in 0..<200 {
            let seed = seeds.next()
            var random = SeededGenerator(seed: seed)
            var valve = valve()
            var now = Instant.zero
            var newest: [String: Int] = [:]
            var read: [String: Int] = [:]
            var sent: [Int: String] = [:]
            func take(_ numbers: [Int]) { for number in numbers { read[sent[number] ?? ""] = number } }
            for number in 0..<500 {
                now = now + .milliseconds(Int.random(in: 0...3, using: &random))
                take(valve.takeDue(at: now))
                let group = "\(Int.random(in: 0...2, using: &random))"
                let item = group + "/\(Int.random(in: 0...2, using: &random))"
                sent[number] = item
                newest[item] = number
                if valve.arrive(number, item: item, of: group, at: now) { take([number]) }
                if Int.random(in: 0..<50, using: &random) == 0 { take(valve.takeAll(of: group)) }
            }
            while let deadline = valve.nextDeadline { take(valve.takeDue(at: max(now, deadline))) }
            #expect(read == newest, "seed \(seed)")
        }
    }
}
