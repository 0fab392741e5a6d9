// Which packets are the floor's, and when the last one of a burst has come.
import MonotonicTime
import RelayProtocol

extension FloorControlStateMachine {
    /// Decides on an RTP packet of `ssrc` sealed under `keyID`. Allocates nothing.
    ///
    /// - Parameter marker: The RTP marker: whether it is the burst's first packet, which may come behind others.
    public mutating func media(
        ssrc: SSRC, keyID: UInt64, sequence: UInt16, marker: Bool, at now: Instant
    ) -> MediaDecision {
        switch state {
        case .idle:
            return .noFloor
        case .taken(var burst):
            guard burst.request.ssrc == ssrc else { return .noFloor }
            guard burst.request.keyID == keyID else { return .wrongKeyID }
            guard burst.sequences.insert(sequence) == .new else { return .duplicate }
            if marker { burst.firstSequence = sequence }
            let isFirst = burst.firstMediaAt == nil
            if isFirst { burst.firstMediaAt = now }
            burst.lastMediaAt = now
            state = .taken(burst)
            return .forward(isFirst: isFirst, endsBurst: false)
        case .releasing(var releasing):
            guard releasing.burst.request.ssrc == ssrc else { return .noFloor }
            guard releasing.burst.request.keyID == keyID else { return .wrongKeyID }
            if let last = releasing.lastSequence, SequenceRecord.isAfter(sequence, last) { return .afterRelease }
            guard releasing.burst.sequences.insert(sequence) == .new else { return .duplicate }
            if marker { releasing.burst.firstSequence = sequence }
            let isFirst = releasing.burst.firstMediaAt == nil
            if isFirst { releasing.burst.firstMediaAt = now }
            releasing.burst.lastMediaAt = now
            let ends = releasing.lastSequence.map { releasing.burst.isComplete(through: $0) } ?? false
            if ends { releasing.deadline = now } else { hasten(&releasing, at: now) }
            state = .releasing(releasing)
            return .forward(isFirst: isFirst, endsBurst: ends)
        }
    }
}
