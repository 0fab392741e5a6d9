// What a link is asked about bursts that the relay keeps, and its answers.
import Reactor
import RelayProtocol
import Vocabulary

extension RelayClient {
    /// Asks which bursts the relay keeps.
    public func keptBursts(_ answer: @escaping @Sendable (Result<[KeptBurst], KeptBurstError>) -> Void) {
        let query = question { found in
            switch found {
            case .list(let bursts): answer(.success(bursts))
            case .failed(let error): answer(.failure(error))
            case .frames: answer(.failure(.notAnswered))
            }
        }
        call(.listBursts(query))
    }

    /// Asks for one of them.
    public func fetchBurst(
        _ id: String, _ answer: @escaping @Sendable (Result<[ReceivedFrame], KeptBurstError>) -> Void
    ) {
        guard let burst = BurstName(id) else {
            return loop.execute { answer(.failure(.notKept)) }
        }
        let query = question { found in
            switch found {
            case .frames(let frames): answer(.success(frames))
            case .failed(let error): answer(.failure(error))
            case .list: answer(.failure(.notAnswered))
            }
        }
        call(.fetchBurst(query, burst))
    }

    /// Remembers who is to be answered.
    private func question(_ answer: @escaping @Sendable (RelayClientCore.BurstAnswer) -> Void) -> BurstQueryID {
        lastQuery += 1
        let query = BurstQueryID(number: lastQuery)
        questions[query] = answer
        return query
    }
}
