// The whole module on a real bus, with a scripted notification server and tray.
import BusTestSupport
import DBus
import Glibc
import MonotonicTime
import PushToTalkCore
import TestSupport
import Testing

@testable import SystemUI

@Suite struct DesktopTests {
    private let png = PTImage(data: [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 1, 2, 3])
    private let jpeg = PTImage(data: [0xFF, 0xD8, 0xFF, 4, 5])

    @Test func `who speaks is notified once, replaced, and closed with the channel`() async throws {
        try await withBus { fixture in
            let server = try await NotificationServer(on: fixture.connect())
            let desktop = try await Desktop(fixture)
            await desktop.ui.update(Desktop.state())
            await desktop.ui.update(Desktop.state(speaker: "Anna"))
            let first = try #require(try await server.notifications.wait(for: 1).first)
            #expect(first.summary == "Anna is speaking" && first.body == "Kitchen" && first.replaced == 0)
            #expect(first.hints["category"] == .string("im.received"))
            await desktop.ui.update(Desktop.state())
            let second = try #require(try await server.notifications.wait(for: 2).last)
            #expect(second.summary == "Anna was speaking" && second.replaced == 1)
            #expect(second.actions == ["talk", "Talk"])
            #expect(server.closed.all.isEmpty)
            await desktop.ui.update(SystemUIState())
            #expect(try await server.closed.wait(for: 1) == [1])
            #expect(server.questions.all.count == 1)
            await desktop.end()
            await server.leave()
        }
    }

    @Test func `Talk on a notification reaches the user's wish, and dismissing it is respected`() async throws {
        try await withBus { fixture in
            let server = try await NotificationServer(on: fixture.connect())
            let desktop = try await Desktop(fixture)
            await desktop.ui.update(Desktop.state(speaker: "Anna"))
            try await server.notifications.wait(for: 1)
            await desktop.ui.update(Desktop.state())
            try await server.notifications.wait(for: 2)
            try await server.emit("ActionInvoked", [.uint32(99), .string("talk")])
            try await server.emit("ActionInvoked", [.uint32(1), .string("talk"), .string("nonsense")])
            try await server.emit("NotificationClosed", [.string("nonsense")])
            try await server.emit("ActionInvoked", [.uint32(1), .string("talk")])
            #expect(try await desktop.wishes.wait(for: 1) == [.talkPressed])
            try await server.emit("NotificationClosed", [.uint32(1), .uint32(2)])
            try await server.waitUntilRead(by: desktop.connection)
            await desktop.ui.update(Desktop.state(speaker: "Bert"))
            let third = try #require(
                try await server.notifications.wait { $0.last?.summary == "Bert is speaking" }.last)
            #expect(third.replaced == 0)
            await desktop.end()
            #expect(try await server.closed.wait(for: 1) == [2])
            await server.leave()
        }
    }

    @Test func `a click on Talk that is refused at once shows why, and nothing after it`() async throws {
        try await withBus { fixture in
            let server = try await NotificationServer(on: fixture.connect())
            let connection = try await fixture.connect()
            let refusing = Recorder<SystemUI>()
            let ui = SystemUI(
                bus: connection, logger: fixture.logger, runtimeDirectory: fixture.bus.directory
            ) { wish in
                guard wish == .talkPressed else { return }
                refusing.all.first?.assumeIsolated { $0.failed("no") }
            }
            refusing.record(ui)
            try await ui.start()
            await ui.update(Desktop.state(speaker: "Anna"))
            try await server.notifications.wait(for: 1)
            await ui.update(Desktop.state())
            try await server.notifications.wait(for: 2)
            let item = try #require(await connection.uniqueName)
            try await server.connection.call(
                destination: item, path: StatusNotifierItem.path, interface: StatusNotifierItem.interface,
                method: "Activate", arguments: [.int32(1), .int32(-1)])
            try await server.notifications.wait { $0.last?.summary == "You cannot talk" }
            await ui.update(Desktop.state(speaker: "Bert"))
            let shown = try await server.notifications.wait { $0.last?.summary == "Bert is speaking" }
            #expect(shown.map(\.summary).suffix(2) == ["You cannot talk", "Bert is speaking"])
            await ui.stop()
            refusing.clear()
            await connection.close()
            await server.leave()
        }
    }

    @Test func `a newcomer is asked about beside who speaks, and the button answers for that newcomer`() async throws {
        try await withBus { fixture in
            let server = try await NotificationServer(on: fixture.connect())
            let desktop = try await Desktop(fixture)
            await desktop.ui.update(Desktop.state(speaker: "Anna"))
            try await server.notifications.wait(for: 1)
            await desktop.ui.update(
                nearby: SystemUINearby(newcomers: [.init(id: "e", name: "Eve\u{202E}", channelName: "Crane 2")]))
            let asked = try #require(try await server.notifications.wait(for: 2).last)
            #expect(asked.summary == "Eve wants to join" && asked.body == "Crane 2" && asked.replaced == 0)
            #expect(asked.actions == ["admit-1", "Admit", "refuse-1", "Refuse"])
            // Who speaks changes, and the question stays what it is.
            await desktop.ui.update(Desktop.state(speaker: "Bert"))
            #expect(try await server.notifications.wait(for: 3).last?.replaced == 1)
            try await Task.sleep(for: .milliseconds(600))
            try await server.emit("ActionInvoked", [.uint32(1), .string("admit-1")])
            try await server.emit("ActionInvoked", [.uint32(2), .string("admit-2")])
            try await server.emit("ActionInvoked", [.uint32(2), .string("talk")])
            try await server.emit("ActionInvoked", [.uint32(2), .string("admit-1")])
            #expect(try await desktop.wishes.wait(for: 1) == [.decideNewcomer("e", isAdmitted: true)])
            // The next one gives up before an answer. (While the server sends a signal it may miss a call.)
            await desktop.ui.update(
                nearby: SystemUINearby(newcomers: [.init(id: "f", name: "Fred", channelName: "Crane 2")]))
            let next = try await server.notifications.wait { $0.last?.summary == "Fred wants to join" }.last
            #expect(next?.replaced == 0 && next?.actions == ["admit-2", "Admit", "refuse-2", "Refuse"])
            await desktop.ui.update(nearby: SystemUINearby())
            #expect(try await server.closed.wait { $0.contains(3) }.last == 3)
            await desktop.end()
            await server.leave()
        }
    }

    @Test func `a server that appears while somebody speaks tells of it, and its successor of what is next`()
        async throws
    {
        try await withBus { fixture in
            let desktop = try await Desktop(fixture)
            await desktop.ui.update(Desktop.state(speaker: "Anna"))
            let first = try await NotificationServer(on: fixture.connect(), capabilities: [])
            #expect(try await first.notifications.wait(for: 1).first?.summary == "Anna is speaking on Kitchen")
            await first.leave()
            let second = try await NotificationServer(on: fixture.connect())
            await desktop.ui.update(Desktop.state(speaker: "Bert"))
            let next = try #require(try await second.notifications.wait(for: 1).first)
            #expect(next.summary == "Bert is speaking" && next.replaced == 0)
            await desktop.end()
            await second.leave()
        }
    }

    @Test func `pictures are files for their readers, and leave nothing behind`() async throws {
        try await withBus { fixture in
            // Left by a process that is gone, by one that lives, and by something else.
            let gone = "\(fixture.bus.directory)/pttd-images-\(pid_t.max)-speakers"
            let others = "\(fixture.bus.directory)/pttd-images-1-speakers"
            for path in [gone, others] { #expect(mkdir(path, 0o700) == 0) }
            fclose(fopen("\(gone)/1.png", "w"))
            let server = try await NotificationServer(on: fixture.connect())
            let watcher = try await Watcher(on: fixture.connect())
            let desktop = try await Desktop(fixture)
            var state = Desktop.state(image: png)
            state.speaker = PTParticipant(name: "Anna", image: jpeg)
            await desktop.ui.update(state)
            let hint = try #require(try await server.notifications.wait(for: 1).first?.hints["image-path"]?.stringValue)
            #expect(hint.hasPrefix("file:///") && hint.hasSuffix(".jpg"))
            #expect(contents(of: String(hint.dropFirst(7))) == [0xFF, 0xD8, 0xFF, 4, 5])
            state.speaker = nil
            await desktop.ui.update(state)
            let item = try #require(try await watcher.items.wait(for: 1).first)
            #expect(
                try await eventually {
                    try await watcher.properties(of: item)["IconName"]?.stringValue?.hasSuffix(".png") == true
                })
            let icon = try #require(try await watcher.properties(of: item)["IconName"]?.stringValue)
            #expect(contents(of: icon)?.count == 11)
            #expect(!files(in: desktop.directory).contains { $0.contains("\(pid_t.max)") })
            #expect(files(in: desktop.directory).contains("pttd-images-1-speakers"))
            for number in UInt8(0)..<10 {
                state.channel?.descriptor = PTChannelDescriptor(
                    name: "C", image: PTImage(data: [0xFF, 0xD8, 0xFF, number]))
                await desktop.ui.update(state)
                try await Task.sleep(for: .milliseconds(20))
            }
            #expect(files(in: "\(desktop.directory)/pttd-images-\(getpid())-channels").count <= 2)
            await desktop.end()
            #expect(files(in: desktop.directory).filter { $0.hasPrefix("pttd-images-\(getpid())") }.isEmpty)
            rmdir(others)
            await server.leave()
            await watcher.leave()
        }
    }

    @Test func `where pictures cannot be written the theme's icons are shown`() async throws {
        try await withBus { fixture in
            let server = try await NotificationServer(on: fixture.connect())
            let connection = try await fixture.connect()
            for directory in [nil, "/proc/none", "relative"] {
                let ui = SystemUI(bus: connection, logger: fixture.logger, runtimeDirectory: directory) { _ in }
                try await ui.start()
                server.notifications.clear()
                var state = Desktop.state(speaker: "Anna")
                state.speaker = PTParticipant(name: "Anna", image: png)
                await ui.update(state)
                let shown = try #require(try await server.notifications.wait(for: 1).first)
                #expect(shown.hints["image-path"] == nil && shown.icon == "audio-volume-high")
                await ui.stop()
            }
            await connection.close()
            await server.leave()
        }
    }

    @Test func `the icon registers with each watcher, and after the bus was away`() async throws {
        try await withBus { fixture in
            let desktop = try await Desktop(fixture)
            let first = try await Watcher(on: fixture.connect())
            let item = try #require(try await first.items.wait(for: 1).first)
            #expect(item.hasPrefix("org.kde.StatusNotifierItem-\(getpid())-"))
            #expect(try await first.connection.owner(of: item) == desktop.connection.uniqueName)
            await first.leave()
            let second = try await Watcher(on: fixture.connect())
            #expect(try await second.items.wait(for: 1) == [item])
            await desktop.ui.update(Desktop.state())
            fixture.bus.stop()
            await desktop.ui.update(Desktop.state(isTransmitting: true))
            try fixture.bus.start()
            #expect(try await second.items.wait(for: 2) == [item, item])
            #expect(
                try await eventually {
                    try await second.properties(of: item)["IconName"] == .string("media-record")
                })
            await desktop.end()
            #expect(try await eventually { try await second.connection.owner(of: item) == nil })
            await second.leave()
        }
    }

    @Test func `icon, tooltip and status follow what goes on`() async throws {
        try await withBus { fixture in
            let watcher = try await Watcher(on: fixture.connect())
            let desktop = try await Desktop(fixture)
            let item = try #require(try await watcher.items.wait(for: 1).first)
            let before = try await watcher.properties(of: item)
            #expect(before["Status"] == .string("Active") && before["Category"] == .string("Communications"))
            #expect(before["Menu"] == .objectPath(MenuService.path))
            await desktop.ui.update(Desktop.state(speaker: "Q&A", image: PTImage(named: "team")))
            try await watcher.signals.wait { Set(["NewIcon", "NewToolTip", "NewTitle"]).isSubset(of: $0) }
            let receiving = try await watcher.properties(of: item)
            #expect(receiving["Status"] == .string("Active"))
            #expect(receiving["IconName"] == .string("audio-volume-high"))
            let toolTip = try #require(receiving["ToolTip"]?.structureValue)
            #expect(toolTip[0] == .string("team") && toolTip[2] == .string("Kitchen"))
            #expect(toolTip[3] == .string("Q&amp;A is speaking"))
            let badge = try #require(receiving["IconPixmap"]?.arrayValue?.first?.structureValue)
            #expect(badge[0] == .int32(48) && badge[2].bytesValue?.count == 48 * 48 * 4)
            await desktop.ui.update(Desktop.state(image: PTImage(named: "team")))
            #expect(try await eventually { try await watcher.properties(of: item)["IconName"] == .string("team") })
            await desktop.ui.update(Desktop.state(image: PTImage(named: "team"), status: .unavailable))
            #expect(
                try await eventually { try await watcher.properties(of: item)["Status"] == .string("NeedsAttention") })
            // Each kind of click is answered; the left one alone means something.
            for method in ["SecondaryActivate", "ContextMenu", "Activate"] {
                try await watcher.connection.call(
                    destination: item, path: StatusNotifierItem.path, interface: StatusNotifierItem.interface,
                    method: method, arguments: [.int32(1), .int32(-1)])
            }
            #expect(desktop.wishes.all == [.talkPressed])
            await desktop.end()
            await watcher.leave()
        }
    }

    @Test func `where the icon's name is taken it registers under the bus's own`() async throws {
        try await withBus { fixture in
            let other = try await fixture.connect()
            let desktop = try await Desktop(fixture)
            let watcher = try await Watcher(on: fixture.connect())
            let mine = try #require(try await watcher.items.wait(for: 1).first)
            await desktop.end()
            // The next icon of this process has the next number, or one soon after it.
            let number = try #require(Int(mine.split(separator: "-").last ?? ""))
            for next in 1...50 {
                try await other.requestName("org.kde.StatusNotifierItem-\(getpid())-\(number + next)")
            }
            let next = try await Desktop(fixture)
            let unique = await next.connection.uniqueName
            #expect(try await watcher.items.wait(for: 2).last == unique)
            await next.end()
            await watcher.leave()
            await other.close()
        }
    }

    @Test func `a storm of changes does not flood notification server, tray and menu`() async throws {
        try await withBus { fixture in
            let server = try await NotificationServer(on: fixture.connect())
            let watcher = try await Watcher(on: fixture.connect())
            let desktop = try await Desktop(fixture)
            let item = try #require(try await watcher.items.wait(for: 1).first)
            let updates = Recorder<Void>()
            try await watcher.connection.addMatch(DBusMatchRule(interface: MenuService.interface)) { _ in
                updates.record(())
            }
            _ = try await watcher.connection.call(
                destination: item, path: MenuService.path, interface: MenuService.interface, method: "GetLayout",
                arguments: [.int32(0), .int32(-1), .strings([])])
            let begin = Instant.now
            for step in 0..<3_000 {
                await desktop.ui.update(
                    Desktop.state(
                        speaker: step.isMultiple(of: 3) ? nil : "Speaker \(step)", isTransmitting: step % 100 > 50))
                if step.isMultiple(of: 10) { try await Task.sleep(for: .milliseconds(3)) }
            }
            await desktop.ui.update(Desktop.state(speaker: "Anna"))
            #expect(try await server.notifications.wait { $0.last?.summary == "Anna is speaking" }.last != nil)
            let seconds = (Instant.now - begin).milliseconds / 1_000
            print(
                "3001 changes in \(seconds) s: \(server.notifications.all.count) notifications,",
                "\(watcher.signals.all.count) signals of the icon, \(updates.all.count) of the menu")
            #expect(server.notifications.all.count <= Int(seconds * 2) + 2)
            #expect(watcher.signals.all.count <= (Int(seconds * 10) + 2) * 4)
            #expect(updates.all.count <= Int(seconds * 10) + 2)
            await desktop.end()
            await server.leave()
            await watcher.leave()
        }
    }

    @Test func `where nobody has a tray nobody is told of one`() async throws {
        try await withBus { fixture in
            let listener = try await fixture.connect()
            let heard = Recorder<String>()
            let desktop = try await Desktop(fixture)
            let sender = try #require(await desktop.connection.uniqueName)
            try await listener.addMatch(DBusMatchRule(sender: sender)) { heard.record($0.member ?? "") }
            for speaker in ["Anna", "Bert", nil] {
                await desktop.ui.update(Desktop.state(speaker: speaker))
                try await Task.sleep(for: .milliseconds(120))
            }
            try await desktop.connection.emitSignal("End", of: "org.example.A", at: "/a")
            #expect(try await heard.wait { $0.contains("End") } == ["End"])
            await desktop.end()
            await listener.close()
        }
    }
}
