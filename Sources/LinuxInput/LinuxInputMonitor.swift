// The input devices that udev rules have tagged for pttd, as they come and go. No other device is ever opened.
import CUdev
import Logging
import MonotonicTime
import Reactor

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// What the tagged input devices do.
public enum LinuxInputEvent: Sendable {
    /// A device is there and is read.
    case added(InputDevice)
    /// A key of a device (by its node) went down or came up.
    case key(node: String, KeyEdge)
    /// A device is gone; its held keys came up before.
    case removed(node: String)
    /// A tagged device cannot be used, or its rule is wrong.
    case problem(node: String, String)
}

/// Reads the keys of input devices that carry the udev tag `pttd`.
///
/// It lives on an event loop; its handler is called there, in order.
public actor LinuxInputMonitor {
    /// The tag: `TAG+="pttd"` in a udev rule.
    public static let tag = "pttd"
    /// Devices read at a time.
    public static let devicesMax = 32

    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop as its executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let logger: Logger
    private let handler: @Sendable (LinuxInputEvent) -> Void
    private var udev: OpaquePointer?
    private var monitor: OpaquePointer?
    private var watch: EventLoop.Watch?
    private var devices: [String: EvdevDevice] = [:]

    /// A monitor that does nothing until `start`.
    public init(loop: EventLoop, logger: Logger, handler: @escaping @Sendable (LinuxInputEvent) -> Void) {
        self.loop = loop
        self.logger = logger
        self.handler = handler
    }

    /// The devices that are read.
    public var openDevices: [InputDevice] { devices.values.map(\.info).sorted { $0.node < $1.node } }

    /// Opens the tagged devices that are there, and those that come.
    ///
    /// - Throws: `LinuxInputError.udev` where udev does not work; other input keeps working.
    public func start() throws(LinuxInputError) {
        guard udev == nil else { return }
        guard let udev = udev_new() else { throw LinuxInputError.udev(call: "udev_new", code: errno) }
        self.udev = udev
        // First the monitor, then the list: what comes in between is told twice rather than never.
        do throws(LinuxInputError) {
            try startMonitor(udev)
        } catch {
            stop()
            throw error
        }
        enumerate(udev)
    }

    /// Closes all devices; held keys come up.
    public func stop() {
        watch?.cancel()
        watch = nil
        for node in devices.keys.sorted() { remove(node) }
        if let monitor { udev_monitor_unref(monitor) }
        if let udev { udev_unref(udev) }
        monitor = nil
        udev = nil
    }

    private func startMonitor(_ udev: OpaquePointer) throws(LinuxInputError) {
        // "udev", not "kernel": only udevd's own events carry tags and come when permissions are set.
        guard let monitor = udev_monitor_new_from_netlink(udev, "udev") else {
            throw LinuxInputError.udev(call: "udev_monitor_new_from_netlink", code: errno)
        }
        self.monitor = monitor
        var code = udev_monitor_filter_add_match_subsystem_devtype(monitor, "input", nil)
        if code >= 0 { code = udev_monitor_filter_add_match_tag(monitor, Self.tag) }
        if code >= 0 { code = udev_monitor_enable_receiving(monitor) }
        guard code >= 0 else { throw LinuxInputError.udev(call: "udev_monitor_enable_receiving", code: -code) }
        do throws(SystemError) {
            watch = try loop.watch(udev_monitor_get_fd(monitor), for: .readable) { [weak self] _ in
                self?.assumeIsolated { $0.receive() }
            }
        } catch {
            throw LinuxInputError.udev(call: error.call, code: error.code)
        }
    }

    private func enumerate(_ udev: OpaquePointer) {
        guard let list = udev_enumerate_new(udev) else { return }
        defer { udev_enumerate_unref(list) }
        guard udev_enumerate_add_match_subsystem(list, "input") >= 0, udev_enumerate_add_match_tag(list, Self.tag) >= 0,
            udev_enumerate_scan_devices(list) >= 0
        else { return logger.warning("The list of input devices cannot be read") }
        var entry = udev_enumerate_get_list_entry(list)
        while let current = entry {
            entry = udev_list_entry_get_next(current)
            guard let path = udev_list_entry_get_name(current), let device = udev_device_new_from_syspath(udev, path)
            else { continue }
            add(device)
            udev_device_unref(device)
        }
    }

    private func receive() {
        guard let monitor, let device = udev_monitor_receive_device(monitor) else { return }
        defer { udev_device_unref(device) }
        let action = udev_device_get_action(device).map { String(cString: $0) }
        if action == "remove" {
            if let node = udev_device_get_devnode(device) { remove(String(cString: node)) }
        } else {
            add(device)
        }
    }

    private func add(_ device: OpaquePointer) {
        guard let pointer = udev_device_get_devnode(device) else { return }
        let node = String(cString: pointer)
        // "/dev/input/js0" and the like belong to the same subsystem, but are no evdev nodes.
        guard node.hasPrefix("/dev/input/event"), udev_device_has_current_tag(device, Self.tag) == 1 else {
            // A rule that was changed has taken the tag away.
            return remove(node)
        }
        open(node: node, rule: InputDeviceRule(properties: properties(of: device)))
    }

    private func properties(of device: OpaquePointer) -> [String: String] {
        var properties: [String: String] = [:]
        var entry = udev_device_get_properties_list_entry(device)
        while let current = entry {
            entry = udev_list_entry_get_next(current)
            guard let name = udev_list_entry_get_name(current).map({ String(cString: $0) }), name.hasPrefix("PTTD_")
            else { continue }
            properties[name] = udev_list_entry_get_value(current).map { String(cString: $0) } ?? ""
        }
        return properties
    }

    func open(node: String, rule: InputDeviceRule) {
        if let known = devices[node] {
            guard known.info.rule != rule else { return }
            remove(node)
        }
        guard devices.count < Self.devicesMax else {
            return report(node, "is one device too many: \(Self.devicesMax) are read at a time")
        }
        for problem in rule.problems { report(node, problem) }
        do throws(LinuxInputError) {
            let device = try EvdevDevice(
                node: node, rule: rule, loop: loop,
                onEdge: { [weak self] edge in self?.assumeIsolated { $0.handler(.key(node: node, edge)) } },
                onLoss: { [weak self] error in
                    self?.assumeIsolated { monitor in
                        monitor.logger.info("Input device lost", metadata: ["reason": "\(error)"])
                        monitor.remove(node)
                    }
                })
            devices[node] = device
            logger.info("Input device", metadata: ["node": "\(node)", "name": "\(device.info.name)"])
            handler(.added(device.info))
        } catch {
            report(node, "\(error)")
        }
    }

    private func remove(_ node: String) {
        guard let device = devices.removeValue(forKey: node) else { return }
        device.shut()
        handler(.removed(node: node))
    }

    private func report(_ node: String, _ problem: String) {
        logger.warning("Input device", metadata: ["node": "\(node)", "problem": "\(problem)"])
        handler(.problem(node: node, problem))
    }
}
