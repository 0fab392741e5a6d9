// When a relay's new connections go to all its workers.
import Synchronization

/// Whether new connections are spread over the workers, or go to the first one.
///
/// A packet that changes threads costs a wake-up. While few are connected one thread serves them all, so they stay on it.
/// With many, the handshakes and the talkers' packets are worth spreading. It goes back at half the number, so that
/// a connection more or less does not switch it each time.
final class ConnectionSpread: Sendable {
    private let threshold: Int
    private let count = Atomic<Int>(0)
    private let isOn: Atomic<Bool>

    /// - Parameter threshold: The number of connections from which new ones are spread; 0: they always are.
    init(from threshold: Int) {
        self.threshold = threshold
        isOn = Atomic(threshold == 0)
    }

    /// Whether it is on at first.
    var isSpread: Bool { isOn.load(ordering: .relaxed) }

    /// A connection has come. Returns true when it is time to spread from now on; of several callers only one gets that.
    func opened() -> Bool {
        let now = count.add(1, ordering: .relaxed).newValue
        return now >= threshold && switchTo(true)
    }

    /// A connection has gone. Returns true when it is time to have new ones go to the first worker again.
    func closed() -> Bool {
        let now = count.subtract(1, ordering: .relaxed).newValue
        return now < threshold / 2 && switchTo(false)
    }

    private func switchTo(_ new: Bool) -> Bool {
        isOn.compareExchange(expected: !new, desired: new, ordering: .relaxed).exchanged
    }
}
