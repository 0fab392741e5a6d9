// When the restoration record is kept and removed.
import MonotonicTime
import Testing

@testable import Bridge

@Suite struct RecordUpkeepTests {
    private var upkeep = RecordUpkeep()
    private let now = Instant(nanoseconds: 1_000_000_000)

    @Test mutating func `nothing is kept while somebody talks, and a removal does not wait`() {
        upkeep.want(.save)
        #expect(upkeep.due(isTalking: true, at: now) == nil)
        #expect(upkeep.isPending)
        #expect(upkeep.due(isTalking: false, at: now) == .save)
        upkeep.did(isOver: true, at: now)
        #expect(!upkeep.isPending && upkeep.nextDeadline == nil)
        upkeep.want(.remove)
        #expect(upkeep.due(isTalking: true, at: now) == .remove)
    }

    @Test mutating func `a disk that refuses is asked again after a time`() {
        upkeep.want(.remove)
        #expect(upkeep.due(isTalking: false, at: now) == .remove)
        upkeep.did(isOver: false, at: now)
        #expect(upkeep.due(isTalking: false, at: now) == nil)
        let next = now + RecordUpkeep.retryInterval
        #expect(upkeep.nextDeadline == next)
        #expect(upkeep.due(isTalking: false, at: next) == .remove)
        upkeep.did(isOver: true, at: next)
        #expect(upkeep.due(isTalking: false, at: next) == nil)
    }

    @Test mutating func `what is wanted later counts, at once`() {
        upkeep.want(.save)
        _ = upkeep.due(isTalking: false, at: now)
        upkeep.did(isOver: false, at: now)
        upkeep.want(.remove)
        #expect(upkeep.due(isTalking: false, at: now) == .remove)
    }

    @Test(arguments: [true, false])
    mutating func `what is wanted while the disk is asked waits for its answer`(isOver: Bool) {
        upkeep.want(.save)
        #expect(upkeep.due(isTalking: false, at: now) == .save)
        upkeep.want(.remove)
        #expect(upkeep.due(isTalking: false, at: now) == nil)
        upkeep.did(isOver: isOver, at: now)
        #expect(upkeep.nextDeadline == nil)
        #expect(upkeep.due(isTalking: false, at: now) == .remove)
        upkeep.did(isOver: true, at: now)
        #expect(!upkeep.isPending)
    }
}
