// What accessories want, in words that a test can compare.
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
