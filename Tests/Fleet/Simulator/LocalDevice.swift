// A button that is wired to the machine: a pedal with a key (evdev), or a serial port that tells lines.
import LinuxInput
import MonotonicTime

@testable import Accessories

/// One input device or serial port, with its one key. It outlives pttd.
final class LocalDevice {
    /// KEY_F13 of <linux/input-event-codes.h>.
    private static let code: UInt16 = 183
    /// The kernel repeats a key that is held.
    private static let repeatInterval = Duration.milliseconds(250)

    private unowned let device: Device
    private let world: World
    private let clock: MachineClock
    private let facts: LocalDeviceFacts
    private var isPort: Bool { facts.isSerialPort }
    private var keys = KeyStateMachine()
    private var fingers = 0
    private var pulls = 0
    private var isPlugged: Bool { pulls == 0 && isUsed }
    /// The machine has one: an accessory that nobody touches only takes time.
    private let isUsed: Bool
    /// pttd has been told that it is down, and can be told when it comes up.
    private(set) var isDown = false
    /// It is held since before the machine slept: for the kernel it is up.
    private var isSpent = false

    init(device: Device, number: Int) {
        self.device = device
        world = device.world
        clock = device.clock
        isUsed = device.fleet.schedule.actions.contains { action in
            (action.verb == .key || action.verb == .pull) && action.device == device.number && action.n % 2 == number
        }
        facts = LocalDeviceFacts(
            id: LocalDeviceID(number == 0 ? "/dev/input/event7" : "/dev/ttyUSB0"), name: number == 0 ? "Pedal" : "Port",
            address: nil, device: nil, accessoryName: number == 0 ? "pedal" : "port",
            profileID: number == 0 ? "key-hold" : "aina-serial", properties: [:], keys: number == 0 ? [Self.code] : [],
            isSerialPort: number == 1)
    }

    private func tell(_ report: LocalDeviceReport) {
        clock.whenAwake { [self] in device.process?.accessories.handle(.local(report)) }
    }

    private func wentUp() {
        guard isDown else { return }
        isDown = false
        device.wentUp()
    }

    // MARK: What people do

    func hold(for time: Duration) {
        fingers += 1
        if fingers == 1 { touch(true) }
        world.after(time) { [self] in
            fingers -= 1
            if fingers == 0 { touch(false) }
        }
    }

    private func touch(_ isPress: Bool) {
        guard isPlugged, clock.asleepSince == nil else { return }
        world.note(device.name, "finger \(isPress ? "holds" : "leaves") the \(facts.name)")
        if isPress {
            isSpent = false
            isDown = device.process != nil
            device.process?.heard(device.newEdge())
        }
        if isPort {
            tell(.bytes(facts.id, Array((isPress ? "+PTT=P\r\n" : "+PTT=R\r\n").utf8), at: clock.now))
        } else {
            key(isPress ? 1 : 0)
            if isPress { repeatKey() }
        }
        if !isPress { wentUp() }
    }

    private func key(_ value: Int32) { tell(keys.handle(.key(code: Self.code, value: value), at: clock.now)) }

    private func tell(_ edges: [KeyEdge]) {
        for edge in edges { tell(.key(facts.id, code: edge.code, isDown: edge.isDown, at: edge.time)) }
    }

    private func repeatKey() {
        world.after(Self.repeatInterval) { [self] in
            guard fingers > 0 else { return }
            if isPlugged, !isSpent { key(2) }
            repeatKey()
        }
    }

    // MARK: What happens to it

    /// It is pulled for a time. What is held then comes up, and is down for nobody when it is there again.
    func pull(for time: Duration) {
        pulls += 1
        if pulls == 1 {
            world.note(device.name, "the \(facts.name) is pulled")
            tell(keys.handle(.removed, at: clock.now))
            tell(.removed(facts.id))
            wentUp()
        }
        world.after(time) { [self] in
            pulls -= 1
            guard isPlugged else { return }
            world.note(device.name, "the \(facts.name) is there again")
            keys = KeyStateMachine()
            tell(.added(facts))
        }
    }

    /// The kernel releases all keys of a machine that falls asleep (`input_dev_suspend`). A serial port tells nothing more.
    func fellAsleep() {
        if isDown, !isPort { key(0) }
        isSpent = fingers > 0
        wentUp()
    }

    /// pttd opens it; a key that is held by then counts as up.
    func daemonCame() {
        isDown = false
        keys = KeyStateMachine()
        if isPlugged { tell(.added(facts)) }
    }
}
