// An endpoint that stops reading for a while, because its owner cannot handle what it would read.
import MonotonicTime
import Reactor

extension QUICEndpoint {
    /// How long nothing is read before the owner is asked again.
    private static let pause: Duration = .milliseconds(20)

    /// Waiting packets stay in the kernel unacknowledged, as if the whole process had stopped. Sending continues.
    ///
    /// - Returns: Whether it may read now.
    func mayReadNow() -> Bool {
        guard pauseTimer == nil else { return false }
        guard let mayRead, !mayRead() else { return true }
        watchSockets(reading: false)
        pauseTimer = loop.schedule(after: Self.pause) { [weak self] in
            guard let self else { return }
            pauseTimer = nil
            if !isClosed, mayReadNow() { watchSockets(reading: true) }
        }
        return false
    }

    private func watchSockets(reading: Bool) {
        for socket in sockets { socket.watch?.update(interest(in: socket, reading: reading)) }
    }

    /// What is waited for at a socket.
    func interest(in socket: UDPSocket, reading: Bool) -> EventLoop.Readiness {
        var interest: EventLoop.Readiness = reading ? .readable : []
        if sender.blocked === socket { interest.insert(.writable) }
        return interest
    }
}
