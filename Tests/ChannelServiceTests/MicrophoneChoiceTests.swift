// Which of two microphones is used: every order of failures, and never a loop.
import MonotonicTime
import TestSupport
import Testing
import Vocabulary

@testable import ChannelService

@Suite struct MicrophoneChoiceTests {
    private let start = Instant.zero + .seconds(10)

    @Test func `without a fallback the microphone is used whatever it does`() {
        var choice = MicrophoneChoice(hasFallback: false)
        #expect(choice.begin(at: start) == .main)
        #expect(choice.isUseless(.main) == nil && choice.used == .main)
        choice.end(at: start + .seconds(1))
        #expect(choice.begin(at: start + .seconds(2)) == .main && !choice.isDoubted && !choice.isOnTrial)
    }

    @Test func `the fallback takes over, begins the next time, and makes way again`() {
        var choice = MicrophoneChoice(hasFallback: true)
        #expect(choice.begin(at: start) == .main && !choice.isOnTrial)
        #expect(choice.isUseless(.main) == .fallback)
        #expect(choice.isUseless(.main) == nil && choice.used == .fallback)
        choice.end(at: start + .seconds(3))

        // Too short to tell.
        #expect(choice.begin(at: start + .seconds(10)) == .fallback && choice.isOnTrial)
        choice.end(at: start + .milliseconds(10_400))
        #expect(choice.isDoubted)
        // Silent again.
        #expect(choice.begin(at: start + .seconds(20)) == .fallback && choice.isOnTrial)
        #expect(choice.isUseless(.main) == nil && !choice.isOnTrial)
        choice.end(at: start + .seconds(25))
        #expect(choice.isDoubted)
        // It works.
        #expect(choice.begin(at: start + .seconds(30)) == .fallback)
        choice.end(at: start + .milliseconds(30_500))
        #expect(!choice.isDoubted && choice.begin(at: start + .seconds(40)) == .main)
    }

    @Test func `one that is heard again within the transmission is trusted from the next one on`() {
        var choice = MicrophoneChoice(hasFallback: true)
        _ = choice.begin(at: start)
        _ = choice.isUseless(.main)
        choice.heardAgain(at: start + .seconds(1))
        #expect(choice.used == .fallback)
        choice.end(at: start + .seconds(2))
        #expect(!choice.isDoubted)
    }

    @Test func `a fallback that fails gives the word back to a microphone on trial, once`() {
        var choice = MicrophoneChoice(hasFallback: true)
        _ = choice.begin(at: start)
        _ = choice.isUseless(.main)
        #expect(choice.isUseless(.fallback) == nil)
        choice.end(at: start)
        _ = choice.begin(at: start + .seconds(1))
        #expect(choice.isUseless(.fallback) == .main)
        #expect(choice.isUseless(.main) == .fallback)
        #expect(choice.isUseless(.fallback) == nil)
    }

    /// Whatever happens, one of the two is used within a transmission, none outside, and the word passes a bounded number of times.
    @Test func `random events leave one microphone in use`() {
        var random = SeededGenerator(seed: 18)
        for _ in 0..<2_000 {
            var choice = MicrophoneChoice(hasFallback: Bool.random(using: &random))
            var now = start
            for _ in 0..<6 {
                _ = choice.begin(at: now)
                var changes = 0
                for _ in 0..<12 {
                    now = now + .milliseconds(Int.random(in: 0...400, using: &random))
                    switch Int.random(in: 0...2, using: &random) {
                    case 0: if choice.isUseless(.main) != nil { changes += 1 }
                    case 1: if choice.isUseless(.fallback) != nil { changes += 1 }
                    default: choice.heardAgain(at: now)
                    }
                    #expect(choice.used != nil)
                    #expect(choice.used == .main || choice.hasFallback)
                }
                #expect(changes <= 24)
                choice.end(at: now)
                #expect(choice.used == nil && !choice.isOnTrial)
            }
        }
    }
}

@Suite struct RecentSpeechTests {
    private let start = Instant.zero + .seconds(10)

    @Test func `the last two seconds are said again, as if they came now`() {
        var recent = RecentSpeech()
        for index in 0..<500 {
            recent.add(packet(UInt16(index)), voice: 0, at: start + .milliseconds(index * 10))
        }
        recent.add(packet(7), voice: 2, at: start + .seconds(5))
        recent.end(0, lastSequence: 499)
        let now = start + .milliseconds(5_000)
        let again = recent.again(0, at: now)
        #expect(again.packets.map(\.sequence) == (300..<500).map { UInt16($0) })
        #expect(again.packets.allSatisfy { $0.receivedAt == now && $0.isRepaired })
        #expect(again.packets.map(\.marker) == [true] + Array(repeating: false, count: 199))
        #expect(again.lastSequence == 499)
        #expect(recent.again(2, at: now).packets.map(\.sequence) == [7])
        #expect(recent.again(2, at: now).lastSequence == nil)
        recent.remove(0)
        #expect(recent.again(0, at: now).packets.isEmpty)
    }

    @Test func `what comes at once is bounded`() {
        var recent = RecentSpeech()
        for index in 0..<1_000 { recent.add(packet(UInt16(index)), voice: 1, at: start) }
        let packets = recent.again(1, at: start).packets
        #expect(packets.count == RecentSpeech.packetsMax && packets.last?.sequence == 999)
    }

    @Test func `a microphone that has gone is neither doubted nor on trial`() {
        let now = Instant(nanoseconds: 1_000_000_000)
        var choice = MicrophoneChoice(hasFallback: true)
        #expect(choice.begin(at: now) == .main)
        #expect(choice.isUseless(.main) == .fallback)
        choice.end(at: now)
        #expect(choice.begin(at: now) == .fallback && choice.isOnTrial)
        choice.forget()
        #expect(!choice.isOnTrial && !choice.isDoubted)
        #expect(choice.isUseless(.fallback) == nil, "it is not gone back to")
        choice.end(at: now)
        #expect(choice.begin(at: now) == .main)
    }
}
