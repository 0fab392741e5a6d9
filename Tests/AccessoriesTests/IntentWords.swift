// What accessories want, in words that a test can compare.
import BusTestSupport
import Testing

@testable import Accessories

extension Sequence<AccessoryEvent> {
    /// The begins and ends of talking, with their sources and reasons.
    var intentWords: [String] {
        compactMap {
            guard case .intent(let intent, _) = $0 else { return nil }
            return switch intent {
            case .transmitBegan(let source, _): "began \(source)"
            case .transmitEscalated(let source): "escalated \(source)"
            case .transmitEnded(let source, let reason): "ended \(source) \(reason.rawValue)"
            }
        }
    }
}

extension AccessoryService {
    /// Waits until presses of the accessory are heard.
    nonisolated func untilReady(_ id: String) async throws {
        let isReady = try await eventually { await self.statuses.contains { $0.id.text == id && $0.isReady } }
        let statuses = await statuses
        try #require(isReady, "\(statuses)")
    }
}
