// Priority for the control loop and the audio threads, and memory locked in RAM, as far as this machine permits.
import Audio
import DBus
import Logging
import RealTimeKit

extension Daemon {
    /// Raises the control loop, whose thread calls this, and asks rtkit on `bus` for every thread of sound that was started without real-time
    /// priority, from now on.
    static func realTimeRequests(on bus: DBusConnection) -> RealTimeRequests {
        let logger = Logger(label: "pttd.realtime")
        let requests = RealTimeRequests(RealTimeKit(on: bus), logger: logger)
        AudioThreads.whenOrdinary { thread in
            requests.add(thread: thread.identifier, priority: .realTime(thread.priority))
        }
        requests.raiseThisThread()
        let refusal = LockedMemory.lockAll()
        logger.debug(
            refusal == 0
                ? "memory is locked in RAM"
                : "only audio buffers are locked in RAM; LimitMEMLOCK=infinity locks all memory",
            metadata: refusal == 0 ? [:] : ["errno": "\(refusal)"])
        return requests
    }
}
