// Devices on their way to being closed, which a driver or a sound server may delay.
import Audio
import Logging
import MonotonicTime
import Reactor

/// What is being closed, and who waits for it. Confined to a loop, which never waits.
final class ClosingDevices {
    private struct Closing {
        let device: AudioDevice
        let end: AudioThreadEnd
        let timer: EventLoop.Timer
    }

    private let loop: EventLoop
    private let logger: Logger
    private var closing: [UInt64: Closing] = [:]
    private var next: UInt64 = 0
    private var waiting: [() -> Void] = []

    init(on loop: EventLoop, logger: Logger) {
        self.loop = loop
        self.logger = logger
    }

    /// Whether everything is closed.
    var isEmpty: Bool { closing.isEmpty }

    /// The end of whoever held `device` last, while it may hold it still.
    func end(of device: AudioDevice) -> AudioThreadEnd? {
        closing.filter { $0.value.device == device }.max { $0.key < $1.key }?.value.end
    }

    /// An engine is being closed. One that does not come to its end in time is told of, and waited for no longer.
    func add(_ end: AudioThreadEnd, of device: AudioDevice) {
        let number = next
        next += 1
        let timer = loop.schedule(after: AudioThreadEnd.limit) { [self] in
            logger.error("\(AudioError.unresponsive(device.description))", metadata: ["device": "\(device)"])
            remove(number)
        }
        closing[number] = Closing(device: device, end: end, timer: timer)
        nonisolated(unsafe) let ended = { [self] in remove(number) }
        end.then { [loop] in loop.execute { ended() } }
    }

    /// Calls `handler` when nothing is being closed: at once, if nothing is.
    func whenClosed(_ handler: @escaping () -> Void) {
        if closing.isEmpty { handler() } else { waiting.append(handler) }
    }

    private func remove(_ number: UInt64) {
        closing.removeValue(forKey: number)?.timer.cancel()
        guard closing.isEmpty else { return }
        let handlers = waiting
        waiting = []
        for handler in handlers { handler() }
    }
}
