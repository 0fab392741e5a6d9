// Questions of the user about bursts that the relay keeps, from asking to the answer. Pure.
import MonotonicTime
import RelayProtocol

/// Names a question on this end, whatever connection it is asked on.
public struct BurstQueryID: Hashable, Sendable {
    let number: UInt64
}

/// The questions under way: the list of the bursts, or one of them, piece by piece.
///
/// Each ends with exactly one answer: also when the link is lost, or nothing comes for `answerTime`.
struct BurstQueries: Sendable {
    /// Questions at one time.
    static let queriesMaximum = 4
    /// How long nothing may come of a request.
    static let answerTime: Duration = .seconds(5)
    /// How often in a row a question is asked again that the relay has put off.
    static let retriesMaximum = 5
    /// The longest time before the query is repeated, whatever the relay says, because no user waits longer to hear
    /// something.
    static let retryMaximum: Duration = .seconds(5)
    /// When to ask again what was put off.
    static func retry(after refusal: ServerMessage.BurstRefused, at now: Instant) -> Instant {
        now + min(max(refusal.retryAfter, .milliseconds(100)), retryMaximum)
    }
    /// Of one burst: two minutes of packets of 10 ms…
    static let packetsMaximum = 12_000
    /// …and their bytes. What is beyond is left out.
    static let bytesMaximum = 2 * 1_024 * 1_024

    /// What came of a question.
    enum Answer: Sendable, Equatable {
        case list([ServerMessage.KeptBurst])
        case packets(BurstName, [[UInt8]])
        case failed(KeptBurstError)
    }

    enum Event: Sendable {
        /// The user wants the list.
        case list(BurstQueryID)
        /// The user wants a burst.
        case fetch(BurstQueryID, BurstName)
        /// `Action.ask` was done, under this number.
        case asked(BurstQueryID, BurstRequestID)
        /// The relay sent the list.
        case listed(ServerMessage.BurstList)
        /// Packets came; `isEnd`: all of this answer, `isWhole`: all of the burst.
        case packets(BurstRequestID, [[UInt8]], isWhole: Bool, isEnd: Bool)
        /// The relay refused.
        case refused(ServerMessage.BurstRefused)
        case linkLost
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    enum Action: Sendable, Equatable {
        /// Ask for the list (`nil`), or for a burst from this number on, and deliver `.asked`.
        case ask(BurstQueryID, BurstName?, first: UInt16?)
        /// Tell the user.
        case answer(BurstQueryID, Answer)
    }

    private struct Query: Sendable {
        let id: BurstQueryID
        /// nil: the list.
        let burst: BurstName?
        var request: BurstRequestID?
        var deadline: Instant
        /// Set while the relay has put it off.
        var retryAt: Instant?
        var retries = 0
        var packets: [[UInt8]] = []
        var byteCount = 0
        /// Whether anything came of the request under way.
        var hasNew = false

        /// The number to continue from.
        var next: UInt16? {
            packets.last.flatMap { try? RTPHeader(parsing: $0) }.map { $0.sequence &+ 1 }
        }

        /// Takes packets; false: as many as may be have come.
        mutating func take(_ new: [[UInt8]]) -> Bool {
            for packet in new {
                guard packets.count < BurstQueries.packetsMaximum,
                    byteCount + packet.count <= BurstQueries.bytesMaximum
                else { return false }
                packets.append(packet)
                byteCount += packet.count
                hasNew = true
            }
            return true
        }
    }

    private var queries: [Query] = []

    /// Whether no question is under way.
    var isIdle: Bool { queries.isEmpty }

    /// When `.deadline` must be delivered, at the latest.
    var nextDeadline: Instant? { queries.map { $0.retryAt ?? $0.deadline }.min() }

    /// Takes an event and says what is to be done.
    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .list(let id): return begin(id, nil, at: now)
        case .fetch(let id, let burst): return begin(id, burst, at: now)
        case .asked(let id, let request):
            if let index = queries.firstIndex(where: { $0.id == id }) { queries[index].request = request }
            return []
        case .listed(let list):
            guard let index = place(of: list.id), queries[index].burst == nil else { return [] }
            return answer(index, .list(list.bursts))
        case .packets(let request, let packets, let isWhole, let isEnd):
            return took(packets, of: request, isWhole: isWhole, isEnd: isEnd, at: now)
        case .refused(let refusal): return refused(refusal, at: now)
        case .linkLost:
            defer { queries = [] }
            return queries.map { .answer($0.id, .failed(.notAnswered)) }
        case .deadline: return deadline(at: now)
        }
    }

    private func place(of request: BurstRequestID) -> Int? { queries.firstIndex { $0.request == request } }

    private mutating func answer(_ index: Int, _ answer: Answer) -> [Action] {
        [.answer(queries.remove(at: index).id, answer)]
    }

    private mutating func begin(_ id: BurstQueryID, _ burst: BurstName?, at now: Instant) -> [Action] {
        guard queries.count < Self.queriesMaximum else { return [.answer(id, .failed(.tooMuch))] }
        queries.append(Query(id: id, burst: burst, deadline: now + Self.answerTime))
        return [.ask(id, burst, first: nil)]
    }

    private mutating func took(
        _ packets: [[UInt8]], of request: BurstRequestID, isWhole: Bool, isEnd: Bool, at now: Instant
    ) -> [Action] {
        guard let index = place(of: request), let burst = queries[index].burst else { return [] }
        let hasRoom = queries[index].take(packets)
        queries[index].deadline = now + Self.answerTime
        guard isEnd || !hasRoom else { return [] }
        if isWhole || !hasRoom || !queries[index].hasNew {
            return answer(index, .packets(burst, queries[index].packets))
        }
        queries[index].request = nil
        queries[index].hasNew = false
        // A relay that gives so much a second puts off piece after piece of a long burst.
        queries[index].retries = 0
        return [.ask(queries[index].id, burst, first: queries[index].next)]
    }

    private mutating func refused(_ refusal: ServerMessage.BurstRefused, at now: Instant) -> [Action] {
        guard let index = place(of: refusal.id) else { return [] }
        if refusal.cause == .tooMuch, queries[index].retries < Self.retriesMaximum {
            queries[index].retries += 1
            queries[index].request = nil
            queries[index].retryAt = Self.retry(after: refusal, at: now)
            return []
        }
        return answer(index, .failed(KeptBurstError(refusal)))
    }

    private mutating func deadline(at now: Instant) -> [Action] {
        var actions: [Action] = []
        for index in queries.indices.reversed() {
            if let retryAt = queries[index].retryAt {
                guard retryAt <= now else { continue }
                queries[index].retryAt = nil
                queries[index].deadline = now + Self.answerTime
                actions.append(.ask(queries[index].id, queries[index].burst, first: queries[index].next))
            } else if queries[index].deadline <= now {
                actions += answer(index, .failed(.notAnswered))
            }
        }
        return actions
    }
}

extension KeptBurstError {
    /// What a relay's refusal means here.
    init(_ refusal: ServerMessage.BurstRefused) {
        self =
            switch refusal.cause {
            case .notAMember: .notAMember
            case .notKept: .notKept
            case .tooMuch: .tooMuch
            case .off: .off
            case .other: .refused(refusal.phrase.isEmpty ? "it gives no reason" : refusal.phrase)
            }
    }
}
