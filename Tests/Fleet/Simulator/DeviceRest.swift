// What takes the audio from the pttd of one machine: telephone calls, and the sleep of the machine.
import MonotonicTime
import PushToTalkCore

@testable import Accessories

/// Calls and sleep of one machine.
final class DeviceRest {
    /// logind tells that the machine is going to sleep so long before it does.
    private static let notice = Duration.milliseconds(30)

    private unowned let device: Device
    private let world: World
    private let clock: MachineClock
    private var calls = 0
    private var sleeps = 0
    /// pttd has been told that the machine goes to sleep, and not that it is awake again.
    private var isToldOfSleep = false
    /// Since when something else has the audio, as far as pttd was told; nil: nothing has.
    private(set) var isTakenSince: Instant?

    init(device: Device) {
        self.device = device
        world = device.world
        clock = device.clock
    }

    /// pttd starts, and is told how it is.
    func daemonCame(_ process: Process) {
        if calls > 0 { process.channel.handle(.callBegan(CallHold(holder: "telephone", description: "a call"))) }
        if isToldOfSleep { process.channel.handle(.audioSessionInterrupted(reason: "sleep")) }
    }

    private func noteTaken() { isTakenSince = calls > 0 || isToldOfSleep ? isTakenSince ?? world.now : nil }

    // MARK: Calls

    func call(for time: Duration) {
        calls += 1
        if calls == 1 {
            noteTaken()
            device.process?.channel.handle(.callBegan(CallHold(holder: "telephone", description: "a call")))
        }
        clock.after(time) { [self] in
            calls -= 1
            noteTaken()
            if calls == 0 { device.process?.channel.handle(.callEnded(holder: "telephone")) }
        }
    }

    // MARK: Sleep

    /// The machine sleeps. Its clock stands still, its Bluetooth links are lost, and no packet passes.
    ///
    /// - Parameter isTold: pttd is told before, and has time to act; otherwise it is told when the machine wakes up.
    func sleep(for time: Duration, isTold: Bool) {
        sleeps += 1
        if sleeps == 1 {
            if isTold { tell() }
            // The host of a channel nearby does not stop: its members would have to look for another one.
            if device.fleet.site == nil {
                world.after(isTold ? Self.notice : .zero) { [self] in if sleeps > 0 { fallAsleep() } }
            }
        }
        world.after(time) { [self] in
            sleeps -= 1
            if sleeps == 0 { wakeUp() }
        }
    }

    private func tell() {
        guard !isToldOfSleep else { return }
        isToldOfSleep = true
        noteTaken()
        device.process?.accessories.handle(.releaseAll(.suspended))
        device.process?.channel.handle(.audioSessionInterrupted(reason: "the machine is going to sleep"))
    }

    private func fallAsleep() {
        guard clock.asleepSince == nil else { return }
        world.note(device.name, "the machine sleeps")
        device.path.noteTrouble(for: .milliseconds(1))
        device.network.fellAsleep()
        device.bluez.fellAsleep()
        for local in device.locals { local.fellAsleep() }
        clock.fallAsleep()
    }

    private func wakeUp() {
        if clock.asleepSince != nil { world.note(device.name, "the machine wakes up") }
        clock.wakeUp()
        // What logind said before the machine slept comes before all that is said now.
        tell()
        device.network.wakesUp()
        device.bluez.wokeUp()
        device.excuse(until: world.now)
        world.after(device.path.milliseconds(1...200)) { [self] in
            // logind tells both in order.
            guard sleeps == 0, isToldOfSleep, clock.asleepSince == nil else { return }
            isToldOfSleep = false
            noteTaken()
            device.process?.accessories.handle(.woke)
            device.process?.channel.handle(.audioSessionInterruptionEnded)
            device.network.woke()
        }
    }
}
