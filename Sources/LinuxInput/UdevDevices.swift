// libudev: the nodes that carry the tag, now and as they come and go.
import CUdev
import Glibc
import Reactor

/// What udev has tagged. It is confined to its loop's thread.
final class UdevDevices {
    enum News {
        case tagged(TaggedDevice)
        case untagged(node: String)
        /// News was missed: ask for `all`.
        case missed
    }

    /// News taken at a turn.
    private static let newsPerTurn = 64

    private let tag: String
    private let udev: OpaquePointer
    private let monitor: OpaquePointer
    private var watch: EventLoop.Watch?

    /// Follows udev from now on; what is there already is in `all`.
    init(tag: String, loop: EventLoop, _ handler: @escaping (News) -> Void) throws(LinuxInputError) {
        self.tag = tag
        guard let udev = udev_new() else { throw LinuxInputError.udev(call: "udev_new", code: errno) }
        // "udev", not "kernel": only udevd's own events carry tags and come when permissions are set.
        guard let monitor = udev_monitor_new_from_netlink(udev, "udev") else {
            let code = errno
            udev_unref(udev)
            throw LinuxInputError.udev(call: "udev_monitor_new_from_netlink", code: code)
        }
        self.udev = udev
        self.monitor = monitor
        var code: Int32 = 0
        for subsystem in ["input", "tty"] where code >= 0 {
            code = udev_monitor_filter_add_match_subsystem_devtype(monitor, subsystem, nil)
        }
        if code >= 0 { code = udev_monitor_filter_add_match_tag(monitor, tag) }
        if code >= 0 { code = udev_monitor_enable_receiving(monitor) }
        guard code >= 0 else { throw LinuxInputError.udev(call: "udev_monitor_enable_receiving", code: -code) }
        do throws(SystemError) {
            watch = try loop.watch(udev_monitor_get_fd(monitor), for: .readable) { [unowned self] _ in receive(handler)
            }
        } catch {
            throw LinuxInputError.udev(call: error.call, code: error.code)
        }
    }

    deinit {
        udev_monitor_unref(monitor)
        udev_unref(udev)
    }

    /// Follows no more.
    func shut() {
        watch?.cancel()
        watch = nil
    }

    /// All tagged devices; nil when udev does not tell.
    var all: [TaggedDevice]? {
        guard let list = udev_enumerate_new(udev) else { return nil }
        defer { udev_enumerate_unref(list) }
        guard udev_enumerate_add_match_subsystem(list, "input") >= 0,
            udev_enumerate_add_match_subsystem(list, "tty") >= 0, udev_enumerate_add_match_tag(list, tag) >= 0,
            udev_enumerate_scan_devices(list) >= 0
        else { return nil }
        var devices: [TaggedDevice] = []
        var entry = udev_enumerate_get_list_entry(list)
        while let current = entry {
            entry = udev_list_entry_get_next(current)
            guard let path = udev_list_entry_get_name(current), let device = udev_device_new_from_syspath(udev, path)
            else { continue }
            defer { udev_device_unref(device) }
            if let tagged = tagged(device) { devices.append(tagged) }
        }
        return devices
    }

    private func receive(_ handler: (News) -> Void) {
        for _ in 0..<Self.newsPerTurn where watch != nil {
            errno = 0
            guard let device = udev_monitor_receive_device(monitor) else {
                // The kernel's buffer ran over.
                if errno == ENOBUFS { handler(.missed) }
                return
            }
            defer { udev_device_unref(device) }
            guard let node = udev_device_get_devnode(device).map({ String(cString: $0) }) else { continue }
            let isRemoved = udev_device_get_action(device).map { String(cString: $0) } == "remove"
            if !isRemoved, let tagged = tagged(device) {
                handler(.tagged(tagged))
            } else {
                handler(.untagged(node: node))
            }
        }
    }

    /// Nil for nodes that are not for us, and for one whose tag a changed rule has taken away.
    private func tagged(_ device: OpaquePointer) -> TaggedDevice? {
        guard let node = udev_device_get_devnode(device), let subsystem = udev_device_get_subsystem(device),
            udev_device_has_current_tag(device, tag) == 1
        else { return nil }
        var properties: [String: String] = [:]
        var entry = udev_device_get_properties_list_entry(device)
        while let current = entry {
            entry = udev_list_entry_get_next(current)
            guard let name = udev_list_entry_get_name(current).map({ String(cString: $0) }),
                name.hasPrefix("PTTD_") || name.hasPrefix("ID_")
            else { continue }
            properties[name] = udev_list_entry_get_value(current).map { String(cString: $0) } ?? ""
        }
        return TaggedDevice(
            node: String(cString: node), subsystem: String(cString: subsystem), properties: properties)
    }
}
