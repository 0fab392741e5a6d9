// One open evdev device: libevdev reads, and re-reads the state when the kernel dropped events.
import CEvdev
import CLinux
import Glibc
import MonotonicTime
import Reactor

/// An open input device. It is confined to its loop's thread.
final class EvdevDevice: OpenDevice {
    /// Events read at a turn; the rest waits for the next one, so that a device in a frenzy does not starve the loop.
    static let eventsPerTurn = 256

    let info: InputDevice
    private let descriptor: Int32
    private let device: OpaquePointer
    private var keys = KeyStateMachine()
    /// To be grabbed once nothing is held: a desktop that has seen a press would never see the release.
    private var awaitsGrab: Bool
    /// What the kernel dropped is being made up for; kept between turns, as libevdev must not be asked for anything else meanwhile.
    private var flag = LIBEVDEV_READ_FLAG_NORMAL.rawValue
    private let loop: EventLoop
    private var watch: EventLoop.Watch?
    private var rest: EventLoop.Timer?
    private let onEdge: (KeyEdge) -> Void
    private let onLoss: (LinuxInputError) -> Void

    /// Opens the node and watches it.
    ///
    /// - Parameters:
    ///   - onEdge: Called for each key edge.
    ///   - onLoss: Called once when the device can be read no more; close it then.
    init(
        _ tagged: TaggedDevice, loop: EventLoop, onEdge: @escaping (KeyEdge) -> Void,
        onLoss: @escaping (LinuxInputError) -> Void
    ) throws(LinuxInputError) {
        let node = tagged.node
        awaitsGrab = tagged.rule.isGrabbed
        descriptor = open(node, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else { throw LinuxInputError(node: node, call: "open", code: errno) }
        var device: OpaquePointer?
        let result = libevdev_new_from_fd(descriptor, &device)
        guard result == 0, let device else {
            close(descriptor)
            throw LinuxInputError(node: node, call: "libevdev_new_from_fd", code: -result)
        }
        self.device = device
        self.loop = loop
        self.onEdge = onEdge
        self.onLoss = onLoss
        info = InputDevice(
            node: node, name: libevdev_get_name(device).map { String(cString: $0) } ?? "",
            bus: UInt16(truncatingIfNeeded: libevdev_get_id_bustype(device)),
            vendor: UInt16(truncatingIfNeeded: libevdev_get_id_vendor(device)),
            product: UInt16(truncatingIfNeeded: libevdev_get_id_product(device)),
            unique: libevdev_get_uniq(device).map { String(cString: $0) }, keys: Self.keys(of: device),
            properties: tagged.properties, rule: tagged.rule)
        do throws(LinuxInputError) {
            // The clock of `Instant`, so that a press carries the time at which the kernel saw it.
            var code = libevdev_set_clock_id(device, CLOCK_MONOTONIC)
            if code == 0 { code = grabWhenFree() }
            guard code == 0 else { throw LinuxInputError(node: node, call: "ioctl", code: -code) }
            do throws(SystemError) {
                watch = try loop.watch(descriptor, for: .readable) { [unowned self] _ in read() }
            } catch {
                throw LinuxInputError(node: node, call: error.call, code: error.code)
            }
        } catch {
            libevdev_free(device)
            close(descriptor)
            throw error
        }
    }

    private static func keys(of device: OpaquePointer) -> Set<UInt16> {
        Set(
            (1..<KeyStateMachine.codesCount).filter { libevdev_has_event_code(device, UInt32(EV_KEY), UInt32($0)) == 1 }
        )
    }

    /// Grabs the device if that is still to be done and no key is down. Returns zero or a negative errno.
    private func grabWhenFree() -> Int32 {
        guard awaitsGrab,
            !info.keys.contains(where: { libevdev_get_event_value(device, UInt32(EV_KEY), UInt32($0)) != 0 })
        else { return 0 }
        awaitsGrab = false
        return libevdev_grab(device, LIBEVDEV_GRAB)
    }

    /// Ends the watch and lets go of the device. Keys that are held come up.
    func shut() {
        guard let watch else { return }
        watch.cancel()
        self.watch = nil
        rest?.cancel()
        rest = nil
        for edge in keys.handle(.removed, at: .now) { onEdge(edge) }
        libevdev_free(device)
        close(descriptor)
    }

    private func read() {
        for _ in 0..<Self.eventsPerTurn {
            guard watch != nil else { return }
            var event = input_event()
            switch libevdev_next_event(device, flag, &event) {
            case Int32(LIBEVDEV_READ_STATUS_SUCCESS.rawValue):
                take(event)
            case Int32(LIBEVDEV_READ_STATUS_SYNC.rawValue):
                // The kernel's buffer ran over: what follows is the difference to the state as it is now.
                if flag == LIBEVDEV_READ_FLAG_NORMAL.rawValue {
                    flag = LIBEVDEV_READ_FLAG_SYNC.rawValue
                } else {
                    take(event)
                }
            case -EAGAIN:
                guard flag == LIBEVDEV_READ_FLAG_SYNC.rawValue else { return }
                flag = LIBEVDEV_READ_FLAG_NORMAL.rawValue
            case let result:
                if result == -EINTR { continue }
                return lose("read", code: -result)
            }
        }
        // libevdev has read on while it was asked: what waits in its own queue, a release perhaps, wakes nobody.
        guard watch != nil, rest == nil else { return }
        rest = loop.schedule(after: .zero) { [weak self] in
            self?.rest = nil
            self?.read()
        }
    }

    private func take(_ event: input_event) {
        guard event.type == UInt16(EV_KEY) else { return }
        let time = Instant(
            nanoseconds: Int64(event.time.tv_sec) &* 1_000_000_000 &+ Int64(event.time.tv_usec) &* 1_000)
        for edge in keys.handle(.key(code: event.code, value: event.value), at: time) { onEdge(edge) }
        // What an edge led to may have closed the device.
        guard watch != nil, awaitsGrab, event.value == 0 else { return }
        let result = grabWhenFree()
        if result != 0 { lose("grab", code: -result) }
    }

    private func lose(_ call: String, code: Int32) {
        shut()
        onLoss(LinuxInputError(node: info.node, call: call, code: code))
    }
}
