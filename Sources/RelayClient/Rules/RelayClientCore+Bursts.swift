// Bursts that the relay keeps: the list of them, one of them once more, and the beginning of one that goes on.
import MonotonicTime
import RelayProtocol
import Vocabulary

extension RelayClientCore {
    /// What came of a question about kept bursts.
    public enum BurstAnswer: Sendable, Equatable {
        /// These are kept, the one that began last first.
        case list([KeptBurst])
        /// The burst, in the order of its sequence numbers.
        case frames([ReceivedFrame])
        /// Neither.
        case failed(KeptBurstError)
    }

    /// The user wants the list.
    mutating func listBursts(_ id: BurstQueryID, at now: Instant) -> [Action] {
        if let error = refusalOfQueries { return [.answer(id, .failed(error))] }
        return query(.list(id), at: now)
    }

    /// The user wants one of them.
    mutating func fetchBurst(_ id: BurstQueryID, _ burst: BurstName, at now: Instant) -> [Action] {
        if let error = refusalOfQueries { return [.answer(id, .failed(error))] }
        guard keyring.has(burst.epoch) else { return [.answer(id, .failed(.noKey))] }
        return query(.fetch(id, burst), at: now)
    }

    private var refusalOfQueries: KeptBurstError? {
        guard session != nil else { return .notConnected }
        return downlink.offersLateEntry ? nil : .notOffered
    }

    mutating func query(_ event: BurstQueries.Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        for action in queries.handle(event, at: now) {
            switch action {
            case .ask(let id, let burst, let first):
                let (request, message) = nextBurstRequest(burst, first: first)
                actions.append(.send(message))
                actions += query(.asked(id, request), at: now)
            case .answer(let id, let answer): actions.append(.answer(id, told(answer, at: now)))
            }
        }
        return actions
    }

    /// Numbers a request for a burst, or for the list (`nil`).
    mutating func nextBurstRequest(_ burst: BurstName?, first: UInt16?) -> (BurstRequestID, ClientMessage) {
        lastBurstRequest = lastBurstRequest.next
        let request = lastBurstRequest
        guard let burst else { return (request, .burstListRequest(request)) }
        return (request, .burstRequest(.init(id: request, burst: burst, first: first)))
    }

    /// Handles packets of a requested burst.
    mutating func receiveBurst(
        _ packets: [[UInt8]], request: BurstRequestID, isWhole: Bool, isEnd: Bool, at now: Instant
    ) -> [Action] {
        guard session != nil else { return [] }
        guard downlink.awaits(request) else {
            return query(.packets(request, packets, isWhole: isWhole, isEnd: isEnd), at: now)
        }
        let actions = receive(answer: packets, at: now)
        return isEnd ? actions + listen(.fetched(request, isWhole: isWhole), at: now) : actions
    }

    mutating func burstRefused(_ refusal: ServerMessage.BurstRefused, at now: Instant) -> [Action] {
        downlink.awaits(refusal.id)
            ? listen(.fetchRefused(refusal), at: now) : query(.refused(refusal), at: now)
    }

    private func told(_ answer: BurstQueries.Answer, at now: Instant) -> BurstAnswer {
        switch answer {
        case .failed(let error): return .failed(error)
        case .list(let bursts):
            return .list(
                bursts.map { burst in
                    KeptBurst(
                        id: burst.burst.description,
                        talker: RelayMember(id: burst.talker.description, name: burst.name.text), age: burst.age,
                        duration: burst.duration, isGoingOn: burst.isGoingOn, isOwn: burst.talker == ownID,
                        canBeOpened: keyring.has(burst.burst.epoch))
                }
                // The relay's order is that of their ends, which is another one where several talk at once.
                .sorted { $0.age < $1.age })
        case .packets(let burst, let packets):
            guard !packets.isEmpty else { return .failed(.notKept) }
            let frames = keyring.open(packets, of: burst, at: now)
            return frames.isEmpty ? .failed(.noKey) : .frames(frames)
        }
    }
}
